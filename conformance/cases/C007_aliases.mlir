// C007: aliases of types and attributes
// level: L0
// expected: ok
// tags: f16, other-scratchpads, scratchpad, text

!tile = !ktdp.access_tile<4xindex>
#far = #ktdp.memory_space<ct_local, ct_id = 3>
func.func private @f(!tile, memref<4xf16, #far>, (!tile) -> !tile)
