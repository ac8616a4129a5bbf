// C206: a grid has at most three dims
// level: L3
// expected: error: grid
// tags: grid, grid-of-several-dims, tile-ids

func.func @main(%y: index) attributes {grid = [1, 1, 1, 1]} {
  %t = ktdp.get_compute_tile_id : index
  return
}
