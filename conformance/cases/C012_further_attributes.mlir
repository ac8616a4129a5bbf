// C012: attributes that the dialect does not know are kept
// level: L0
// expected: ok
// tags: grid, text, tile-ids

func.func @f() attributes {grid = [2], producer.note = "hand-written"} {
  %t = ktdp.get_compute_tile_id {note = 1} : index
  return
}
