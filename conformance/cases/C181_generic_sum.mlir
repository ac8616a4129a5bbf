// C181: a generic reduction maps, then sums in machine order
// level: L2
// expected: values
// tags: bodies, f16, f32, numerics, reductions

#box2x3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = #box2x3, memory_space = #ktdp.memory_space<global>} : memref<2x3xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x3} : memref<2x3xf16> -> !ktdp.access_tile<2x3xindex>
  %v = ktdp.load %v_tile : <2x3xindex> -> tensor<2x3xf16>
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2xf32>
  %o = linalg.fill ins(%z : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%v : tensor<2x3xf16>) outs(%o : tensor<2xf32>) {
  ^bb0(%p: f16, %acc: f32):
    %w = arith.extf %p : f16 to f32
    %q = arith.mulf %w, %w : f32
    %a = arith.addf %acc, %q : f32
    linalg.yield %a : f32
  } -> tensor<2xf32>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf32> -> !ktdp.access_tile<2xindex>
  ktdp.store %s, %y_out_tile : tensor<2xf32>, <2xindex>
  return
}
