// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: func.func @integers(%arg0: i32, %arg1: i64)
func.func @integers(%i: i32, %j: i64) -> (i32, i32, i64) {
  // CHECK-NEXT: %[[A:.*]] = spyreop.addi32toi32 %arg0, %arg0
  %a = spyreop.addi32toi32 %i, %i
  // CHECK-NEXT: %[[B:.*]] = spyreop.muli32toi32 %[[A]], %arg0 {note}
  %b = spyreop.muli32toi32 %a, %i {note}
  // CHECK-NEXT: spyreop.addi64toi64 %arg1, %arg1
  %c = spyreop.addi64toi64 %j, %j
  // CHECK-NEXT: spyreop.idx32toaddr %arg0 base %[[A]] stride %[[B]]
  %d = spyreop.idx32toaddr %i base %a stride %b
  return %a, %d, %c : i32, i32, i64
}

// Numbers in the place of base and stride, and one operand of layernormscale, are old spellings that stay.
// CHECK-LABEL: func.func @old
func.func @old(%i: i32, %x: f16) -> (i32, f16) {
  // CHECK-NEXT: spyreop.idx32toaddr %arg0 base 0xCAFE0000 stride 128
  %a = spyreop.idx32toaddr %i base 0xCAFE0000 stride 128
  // CHECK-NEXT: spyreop.layernormscale %arg1 : f16
  %b = spyreop.layernormscale %x : f16
  return %a, %b : i32, f16
}

// CHECK-LABEL: func.func @functions
func.func @functions(%x: f16, %d: !spyreop.df16, %y: f32) {
  // CHECK-NEXT: spyreop.exp %arg2 : f32
  %0 = spyreop.exp %y : f32
  // CHECK-NEXT: spyreop.reciprocal %arg1 : !spyreop.df16
  %1 = spyreop.reciprocal %d : !spyreop.df16
  // CHECK-NEXT: spyreop.sigmoid %arg0 : f16
  %2 = spyreop.sigmoid %x : f16
  // CHECK-NEXT: spyreop.silu %arg0 : f16
  %3 = spyreop.silu %x : f16
  // CHECK-NEXT: spyreop.sqrt %arg0 : f16
  %4 = spyreop.sqrt %x : f16
  // CHECK-NEXT: spyreop.rsqrt %arg0 : f16
  %5 = spyreop.rsqrt %x : f16
  // CHECK-NEXT: spyreop.gelu %arg1 : !spyreop.df16
  %6 = spyreop.gelu %d : !spyreop.df16
  // CHECK-NEXT: spyreop.realdiv %arg2, %arg2 : f32
  %7 = spyreop.realdiv %y, %y : f32
  // CHECK-NEXT: %[[C:.*]] = spyreop.compare <lesserequal> %arg0, %arg0 : f16
  %8 = spyreop.compare <lesserequal> %x, %x : f16
  // CHECK-NEXT: spyreop.compare <notequal> %arg2, %arg2 : f32
  %9 = "spyreop.compare"(%y, %y) {predicate = #spyreop.compare_predicate<notequal>} : (f32, f32) -> f32
  // CHECK-NEXT: spyreop.select %[[C]], %arg0, %arg0 : f16
  %10 = spyreop.select %8, %x, %x : f16
  // CHECK-NEXT: spyreop.softplus %arg0 beta 2.500000e-01 threshold 2.000000e+01 : f16
  %11 = spyreop.softplus %x beta 0.25 threshold 2.0e+1 : f16
  return
}

// CHECK-LABEL: func.func @normalisation
func.func @normalisation(%x: f16) -> f16 {
  // CHECK-NEXT: %[[M:.*]]:2 = spyreop.exx2 %arg0 : f16
  %mean, %squares = spyreop.exx2 %x : f16
  // CHECK-NEXT: spyreop.layernormscale %[[M]]#0 squares %[[M]]#1 : f16
  %scale = spyreop.layernormscale %mean squares %squares : f16
  // CHECK-NEXT: %[[P:.*]] = spyreop.exx2_fused %arg0 : f16 -> !spyreop.fp16_fused
  %p = spyreop.exx2_fused %x : f16 -> !spyreop.fp16_fused
  // CHECK-NEXT: spyreop.exx2_zeromean_fused %arg0 : f16 -> !spyreop.fp16_fused
  %z = spyreop.exx2_zeromean_fused %x : f16 -> !spyreop.fp16_fused
  // CHECK-NEXT: spyreop.layernormscale_fused %[[P]] : !spyreop.fp16_fused -> f16
  %s = spyreop.layernormscale_fused %p : !spyreop.fp16_fused -> f16
  // CHECK-NEXT: spyreop.layernormnorm %arg0 squares %[[M]]#0 scale %{{.*}} weight %arg0 bias %arg0 : f16
  %y = spyreop.layernormnorm %x squares %mean scale %s weight %x bias %x : f16
  return %y : f16
}

// CHECK-LABEL: func.func @others
// CHECK-SAME: (%arg0: tensor<64xf16>, %arg1: tensor<4x!spyreop.df16>, %arg2: vector<2xf16>, %arg3: !spyreop.df16_fused, %arg4: !spyreop.fp32_fused)
func.func @others(%t: tensor<64xf16>, %u: tensor<4x!spyreop.df16>, %v: vector<2xf16>, %w: !spyreop.df16_fused, %z: !spyreop.fp32_fused) {
  // CHECK-NEXT: spyreop.constant 1.500000e+00 : f32
  %a = spyreop.constant 1.5 : f32
  // CHECK-NEXT: spyreop.constant 0xFC00 : f16
  %b = spyreop.constant 0xFC00 : f16
  // CHECK-NEXT: spyreop.constant -2.000000e+00 : f16 {note}
  %c = spyreop.constant -2.0 : f16 {note}
  // CHECK-NEXT: spyreop.slice_reduction %arg0 {reduction_kind = #spyreop.reduction_kind<abs_max>, reduction_scope = #spyreop.reduction_scope<across_slice>} : tensor<64xf16> -> tensor<64xf16>
  %d = spyreop.slice_reduction %t {reduction_scope = #spyreop.reduction_scope<across_slice>, reduction_kind = #spyreop.reduction_kind<abs_max>} : tensor<64xf16> -> tensor<64xf16>
  return
}

// In the body of a linalg.generic, where they belong; pure, so the unused one goes and the two equal ones merge.
// RUN: ktir-opt %s --cse | FileCheck %s --check-prefix=CSE
#id = affine_map<(d0) -> (d0)>
// CSE-LABEL: func.func @body
// CSE: spyreop.exp
// CSE-NEXT: spyreop.realdiv %[[E:.*]], %[[E]]
// CSE-NEXT: linalg.yield
func.func @body(%x: tensor<64xf16>, %o: tensor<64xf16>) -> tensor<64xf16> {
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%o : tensor<64xf16>) {
  ^bb0(%a: f16, %b: f16):
    %e = spyreop.exp %a : f16
    %f = spyreop.exp %a : f16
    %unused = spyreop.sqrt %a : f16
    %q = spyreop.realdiv %e, %f : f16
    linalg.yield %q : f16
  } -> tensor<64xf16>
  return %y : tensor<64xf16>
}
