func.func private @types(!ktdp.access_tile<4x?xindex>, !ktdp.access_tile<index>, tuple<!ktdp.access_tile<0x42xindex>, f16>)
