// C125: a view cut at a lane reads zero and drops writes beyond the cut
// level: L2
// expected: values
// tags: bodies, f16, masks, strides

// Two rows of 66 elements, 70 apart, in sticks: lanes 2 to 63 of the second stick are dead.
#cut = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0, -64 * d0 - d2 + 65 >= 0)>
#whole = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#last = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 3 >= 0)>
#few = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: index, %y: index, %z: index) {
  %at0 = arith.constant 0 : index
  %at1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x_view = ktdp.construct_memory_view %x, sizes: [2, 2, 64], strides: [64, 70, 1]
      {coordinate_set = #cut, masked, memory_space = #ktdp.memory_space<global>} : memref<2x2x64xf16>
  %x_tile = ktdp.construct_access_tile %x_view[%at0, %at0, %at0]
      {access_tile_order = #id3, access_tile_set = #whole} : memref<2x2x64xf16> -> !ktdp.access_tile<2x2x64xindex>
  %a = ktdp.load %x_tile : <2x2x64xindex> -> tensor<2x2x64xf16>
  %y_view = ktdp.construct_memory_view %y, sizes: [2, 2, 64], strides: [64, 70, 1]
      {coordinate_set = #cut, masked, memory_space = #ktdp.memory_space<global>} : memref<2x2x64xf16>
  %y_tile = ktdp.construct_access_tile %y_view[%at0, %at0, %at0]
      {access_tile_order = #id3, access_tile_set = #whole} : memref<2x2x64xf16> -> !ktdp.access_tile<2x2x64xindex>
  ktdp.store %a, %y_tile : tensor<2x2x64xf16>, <2x2x64xindex>
  %last = ktdp.construct_access_tile %x_view[%at1, %at0, %at0]
      {access_tile_order = #id3, access_tile_set = #last} : memref<2x2x64xf16> -> !ktdp.access_tile<1x2x4xindex>
  %b = ktdp.load %last : <1x2x4xindex> -> tensor<1x2x4xf16>
  %e = tensor.empty() : tensor<2x4xf16>
  %f = linalg.generic
      {indexing_maps = [affine_map<(d0, d1) -> (0, d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<1x2x4xf16>) outs(%e : tensor<2x4xf16>) {
  ^bb0(%in: f16, %out: f16):
    linalg.yield %in : f16
  } -> tensor<2x4xf16>
  %z_view = ktdp.construct_memory_view %z, sizes: [2, 4], strides: [4, 1]
      {coordinate_set = #few, memory_space = #ktdp.memory_space<global>} : memref<2x4xf16>
  %z_tile = ktdp.construct_access_tile %z_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #few} : memref<2x4xf16> -> !ktdp.access_tile<2x4xindex>
  ktdp.store %f, %z_tile : tensor<2x4xf16>, <2x4xindex>
  return
}
