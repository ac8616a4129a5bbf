// C017: a tile type has element type index
// level: L0
// expected: error: tile element type must be 'index'
// tags: rejections, text

func.func private @f(!ktdp.access_tile<4xf16>)
