// C207: a grid has at least one dim
// level: L3
// expected: error: grid
// tags: grid, tile-ids

func.func @main(%y: index) attributes {grid = []} {
  %t = ktdp.get_compute_tile_id : index
  return
}
