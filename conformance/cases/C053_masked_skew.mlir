// C053: a masked view's coordinate set is a box, or a box cut at a lane
// level: L1
// expected: error: expects a masked view's coordinate set to be a box, or one cut at a lane
// tags: f16, masks, rejections

#skew = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0, d0 - d1 >= 0)>
func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4, 4], strides: [4, 1]
      {coordinate_set = #skew, masked, memory_space = #ktdp.memory_space<global>} : memref<4x4xf16>
  return
}
