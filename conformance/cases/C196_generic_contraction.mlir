// C196: a generic contraction with the second operand transposed is a matmul
// level: L2
// expected: values
// tags: bodies, f16, f32, matmul, numerics

#box2x3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box2x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%a: index, %b: index, %y: index) {
  %at0 = arith.constant 0 : index
  %l_view = ktdp.construct_memory_view %a, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = #box2x3, memory_space = #ktdp.memory_space<global>} : memref<2x3xf16>
  %l_tile = ktdp.construct_access_tile %l_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x3} : memref<2x3xf16> -> !ktdp.access_tile<2x3xindex>
  %l = ktdp.load %l_tile : <2x3xindex> -> tensor<2x3xf16>
  %r_view = ktdp.construct_memory_view %b, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = #box2x3, memory_space = #ktdp.memory_space<global>} : memref<2x3xf16>
  %r_tile = ktdp.construct_access_tile %r_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x3} : memref<2x3xf16> -> !ktdp.access_tile<2x3xindex>
  %r = ktdp.load %r_tile : <2x3xindex> -> tensor<2x3xf16>
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x2xf32>
  %o = linalg.fill ins(%z : f32) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
  %s = linalg.generic
      {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%l, %r : tensor<2x3xf16>, tensor<2x3xf16>) outs(%o : tensor<2x2xf32>) {
  ^bb0(%p: f16, %q: f16, %acc: f32):
    %u = arith.extf %p : f16 to f32
    %v = arith.extf %q : f16 to f32
    %w = arith.mulf %u, %v : f32
    %t = arith.addf %acc, %w : f32
    linalg.yield %t : f32
  } -> tensor<2x2xf32>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #box2x2, memory_space = #ktdp.memory_space<global>} : memref<2x2xf32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<2x2xf32> -> !ktdp.access_tile<2x2xindex>
  ktdp.store %s, %y_out_tile : tensor<2x2xf32>, <2x2xindex>
  return
}
