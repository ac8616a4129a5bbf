// C397: integer sums and products wrap around
// level: L2
// expected: values
// tags: bodies, i32, spyreop

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %z: index, %y: index) {
  %at0 = arith.constant 0 : index
  %in0_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xi32>
  %in0_tile = ktdp.construct_access_tile %in0_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xi32> -> !ktdp.access_tile<4xindex>
  %in0 = ktdp.load %in0_tile : <4xindex> -> tensor<4xi32>
  %in1_view = ktdp.construct_memory_view %z, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xi32>
  %in1_tile = ktdp.construct_access_tile %in1_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xi32> -> !ktdp.access_tile<4xindex>
  %in1 = ktdp.load %in1_tile : <4xindex> -> tensor<4xi32>
  %e = tensor.empty() : tensor<4xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%in0, %in1 : tensor<4xi32>, tensor<4xi32>) outs(%e : tensor<4xi32>) {
  ^bb0(%p: i32, %q: i32, %o: i32):
    %s = spyreop.addi32toi32 %p, %q
    %t = spyreop.muli32toi32 %s, %q
    linalg.yield %t : i32
  } -> tensor<4xi32>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xi32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xi32> -> !ktdp.access_tile<4xindex>
  ktdp.store %r, %y_out_tile : tensor<4xi32>, <4xindex>
  return
}
