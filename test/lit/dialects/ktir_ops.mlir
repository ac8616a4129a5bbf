// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: func.func @ops(
func.func @ops(%base: index, %x: tensor<4x8xf32>, %n: tensor<4x8xi16>, %i: tensor<4xi64>) -> tensor<4x8xf32> {
  // CHECK: %[[M:.*]] = ktir.materialize %{{.*}} : tensor<4xi64> -> memref<4xi64>
  %m = ktir.materialize %i : tensor<4xi64> -> memref<4xi64>
  %v = ktdp.construct_memory_view %base, sizes: [16, 8], strides: [8, 1]
      {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 15 >= 0, d1 >= 0, -d1 + 7 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<16x8xf32>
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%a, %b) %v[ind(%m[%a]), (%b)]
      {variables_space_order = affine_map<(d0, d1) -> (d0, d1)>, variables_space_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 7 >= 0)>}
      : memref<16x8xf32>, memref<4xi64> -> !ktdp.access_tile<4x8xindex>
  // CHECK: ktir.scatter_add %{{.*}}, %{{.*}} : tensor<4x8xf32>, !ktdp.access_tile<4x8xindex>
  ktir.scatter_add %x, %t : tensor<4x8xf32>, !ktdp.access_tile<4x8xindex>
  // CHECK: ktir.scan %{{.*}} dimension = 1 : tensor<4x8xf32> -> tensor<4x8xf32> {
  // CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: f32):
  // CHECK: ktir.yield %{{.*}} : f32
  %s = ktir.scan %x dimension = 1 : tensor<4x8xf32> -> tensor<4x8xf32> {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    ktir.yield %c : f32
  }
  // CHECK: ktir.sort %{{.*}}, %{{.*}} dimension = 1 {descending, stable} : tensor<4x8xf32>, tensor<4x8xi16> -> tensor<4x8xf32>, tensor<4x8xi16>
  %k, %o = ktir.sort %s, %n dimension = 1 {descending, stable} : tensor<4x8xf32>, tensor<4x8xi16> -> tensor<4x8xf32>, tensor<4x8xi16>
  return %k : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @pairs(
func.func @pairs(%x: tensor<256x4xf16>) -> tensor<128x4xvector<2xi8>> {
  // CHECK: ktir.pair_bytes %{{.*}} dimension = 0 : tensor<256x4xf16> -> tensor<128x4xvector<2xi8>>
  %p = ktir.pair_bytes %x dimension = 0 : tensor<256x4xf16> -> tensor<128x4xvector<2xi8>>
  return %p : tensor<128x4xvector<2xi8>>
}
