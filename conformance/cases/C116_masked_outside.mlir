// C116: a tile that lies outside of a masked view altogether
// level: L2
// expected: values
// tags: dynamic-sizes, f16, masks

#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @main(%x: index, %n: index, %y: index, %z: index) {
  %at0 = arith.constant 0 : index
  %at4 = arith.constant 4 : index
  %at6 = arith.constant 6 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [%n], strides: [1]
      {coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at6]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<?xf16> -> !ktdp.access_tile<2xindex>
  %a = ktdp.load %a_tile : <2xindex> -> tensor<2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [%n], strides: [1]
      {coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at4]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<?xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %a, %y_out_tile : tensor<2xf16>, <2xindex>
  %z_out_view = ktdp.construct_memory_view %z, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %z_out_tile = ktdp.construct_access_tile %z_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %a, %z_out_tile : tensor<2xf16>, <2xindex>
  return
}
