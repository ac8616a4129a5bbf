// C204: more coordinates than dims
// level: L3
// expected: error: asks for 2 coordinates of a grid of 1 dims
// tags: grid, tile-ids

func.func @main(%y: index) attributes {grid = [4]} {
  %a, %b = ktdp.get_compute_tile_id : index, index
  return
}
