// C312: all predicates; selection by a number
// level: L1
// expected: ok
// tags: f16, spyreop

func.func @f(%a: f16, %b: f16) {
  %0 = spyreop.compare <equal> %a, %b : f16
  %1 = spyreop.compare <notequal> %a, %b : f16
  %2 = spyreop.compare <greaterthan> %a, %b : f16
  %3 = spyreop.compare <greaterequal> %a, %b : f16
  %4 = spyreop.compare <lesserthan> %a, %b : f16
  %5 = spyreop.compare <lesserequal> %a, %b : f16
  %s = spyreop.select %0, %a, %b : f16
  return
}
