// C080: dynamic extents of tile and tensor match
// level: L1
// expected: ok
// tags: f16

func.func @f(%t: !ktdp.access_tile<?x4xindex>) {
  %a = ktdp.load %t : <?x4xindex> -> tensor<?x4xf16>
  ktdp.store %a, %t : tensor<?x4xf16>, <?x4xindex>
  return
}
