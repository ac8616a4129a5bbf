// C398: a constant in a body
// level: L2
// expected: values
// tags: bodies, f16, spyreop

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %in0_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %in0_tile = ktdp.construct_access_tile %in0_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %in0 = ktdp.load %in0_tile : <4xindex> -> tensor<4xf16>
  %e = tensor.empty() : tensor<4xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%in0 : tensor<4xf16>) outs(%e : tensor<4xf16>) {
  ^bb0(%p: f16, %o: f16):
    %c = spyreop.constant 0.5 : f16
    %s = arith.mulf %p, %c : f16
    linalg.yield %s : f16
  } -> tensor<4xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  ktdp.store %r, %y_out_tile : tensor<4xf16>, <4xindex>
  return
}
