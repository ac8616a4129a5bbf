// C002: tile types of every rank, with dynamic and zero extents
// level: L0
// expected: ok
// tags: rank-0, text

func.func private @f(!ktdp.access_tile<4x?xindex>, !ktdp.access_tile<index>, !ktdp.access_tile<0x42xindex>, !ktdp.access_tile<?x?x?xindex>)
