// C018: extents of a tile type are not negative
// level: L0
// expected: error: tile dimensions must be non-negative
// tags: rejections, text

func.func private @f(!ktdp.access_tile<-4xindex>)
