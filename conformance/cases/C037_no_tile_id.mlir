// C037: a tile id has at least one coordinate
// level: L1
// expected: error: at least one
// tags: rejections, tile-ids

func.func @f() {
  "ktdp.get_compute_tile_id"() : () -> ()
  return
}
