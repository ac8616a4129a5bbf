// C038: coordinates are of type index
// level: L1
// expected: error: must be index, but got 'i32'
// tags: i32, rejections, tile-ids

func.func @f() {
  %a = ktdp.get_compute_tile_id : i32
  return
}
