// C011: locations of operations are kept
// level: L0
// expected: ok
// tags: grid, text, tile-ids

func.func @f() attributes {grid = [2]} {
  %t = ktdp.get_compute_tile_id : index loc("kernel.py":7:5)
  return
}
