// C205: the sizes of a grid are positive
// level: L3
// expected: error: grid

func.func @main(%y: index) attributes {grid = [4, 0]} {
  %t = ktdp.get_compute_tile_id : index
  return
}
