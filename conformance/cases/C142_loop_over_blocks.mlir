// C142: blocks of 3 over 7 elements, the last one masked
// level: L2
// expected: values
// tags: control-flow, dynamic-sizes, f16, masks

#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
func.func @main(%x: index, %n: index, %y: index) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  scf.for %i = %c0 to %n step %c3 {
    %v_view = ktdp.construct_memory_view %x, sizes: [%n], strides: [1]
        {coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
    %v_tile = ktdp.construct_access_tile %v_view[%i]
        {access_tile_order = #id1, access_tile_set = #box3} : memref<?xf16> -> !ktdp.access_tile<3xindex>
    %v = ktdp.load %v_tile : <3xindex> -> tensor<3xf16>
    %w = arith.addf %v, %v : tensor<3xf16>
    %y_out_view = ktdp.construct_memory_view %y, sizes: [%n], strides: [1]
        {coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
    %y_out_tile = ktdp.construct_access_tile %y_out_view[%i]
        {access_tile_order = #id1, access_tile_set = #box3} : memref<?xf16> -> !ktdp.access_tile<3xindex>
    ktdp.store %w, %y_out_tile : tensor<3xf16>, <3xindex>
  }
  return
}
