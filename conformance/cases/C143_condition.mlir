// C143: a conditional on a number
// level: L2
// expected: values
// tags: control-flow, f16

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @main(%x: index, %n: index, %y: index) {
  %at0 = arith.constant 0 : index
  %at2 = arith.constant 2 : index
  %c2 = arith.constant 2 : index
  %c = arith.cmpi slt, %n, %c2 : index
  %r = scf.if %c -> (tensor<2xf16>) {
    %a_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
        {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    %a_tile = ktdp.construct_access_tile %a_view[%at0]
        {access_tile_order = #id1, access_tile_set = #box2} : memref<4xf16> -> !ktdp.access_tile<2xindex>
    %a = ktdp.load %a_tile : <2xindex> -> tensor<2xf16>
    scf.yield %a : tensor<2xf16>
  } else {
    %b_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
        {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    %b_tile = ktdp.construct_access_tile %b_view[%at2]
        {access_tile_order = #id1, access_tile_set = #box2} : memref<4xf16> -> !ktdp.access_tile<2xindex>
    %b = ktdp.load %b_tile : <2xindex> -> tensor<2xf16>
    scf.yield %b : tensor<2xf16>
  }
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %r, %y_out_tile : tensor<2xf16>, <2xindex>
  return
}
