// C206: a grid has at most three dims
// level: L3
// expected: error: grid

func.func @main(%y: index) attributes {grid = [1, 1, 1, 1]} {
  %t = ktdp.get_compute_tile_id : index
  return
}
