// C036: one, two and three coordinates
// level: L1
// expected: ok
// tags: grid, grid-of-several-dims, tile-ids

func.func @f() attributes {grid = [2, 3, 4]} {
  %a = ktdp.get_compute_tile_id : index
  %b:2 = ktdp.get_compute_tile_id : index, index
  %c, %d, %e = ktdp.get_compute_tile_id : index, index, index
  return
}
