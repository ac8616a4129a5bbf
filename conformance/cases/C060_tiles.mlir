// C060: tiles of a tensor, of a shifted set, of a symbolic set, of rank 0
// level: L1
// expected: ok
// tags: f16, f32, literal-subscripts, rank-0, sets, symbols

#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box2x8 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 7 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#part3 = affine_set<(d0) : (d0 - 1 >= 0, -d0 + 3 >= 0)>
#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#id0 = affine_map<() -> ()>
#point = affine_set<() : (0 == 0)>
func.func @f(%v: tensor<8x8xf16>, %w: memref<8xf16>, %z: memref<f32>, %i: index, %n: index) {
  %t = ktdp.construct_access_tile %v[%i, 0]
      {access_tile_order = #id2, access_tile_set = #box2x8} : tensor<8x8xf16> -> !ktdp.access_tile<2x8xindex>
  %s = ktdp.construct_access_tile %w[2]
      {access_tile_order = #id1, access_tile_set = #part3} : memref<8xf16> -> !ktdp.access_tile<3xindex>
  %q = ktdp.construct_access_tile %w[%i] symbols(%n)
      {access_tile_order = #id1, access_tile_set = #boxn} : memref<8xf16> -> !ktdp.access_tile<?xindex>
  %p = ktdp.construct_access_tile %z[]
      {access_tile_order = #id0, access_tile_set = #point} : memref<f32> -> !ktdp.access_tile<index>
  return
}
