// C205: the sizes of a grid are positive
// level: L3
// expected: error: grid
// tags: grid, grid-of-several-dims, tile-ids

func.func @main(%y: index) attributes {grid = [4, 0]} {
  %t = ktdp.get_compute_tile_id : index
  return
}
