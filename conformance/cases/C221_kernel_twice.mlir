// C221: a kernel may be called again
// level: L3
// expected: values
// tags: f16, grid, programs, tile-ids

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @double(%x: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf16>
  %w = arith.addf %v, %v : tensor<1xf16>
  %o_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %o_tile = ktdp.construct_access_tile %o_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %w, %o_tile : tensor<1xf16>, <1xindex>
  return
}
func.func @main(%x: index, %y: index) {
  call @double(%x) : (index) -> ()
  call @double(%x) : (index) -> ()
  call @double(%y) : (index) -> ()
  return
}
