// y = x w for 4 rows and one 64 x 64 block of weights; each corelet has 2 rows and the whole block.
spyre.program "matmul" {
  spyre.argument "x" role = input, sticks = 4, element_bytes = 2
  spyre.argument "w" role = input, sticks = 64, element_bytes = 2
  spyre.argument "y" role = output, sticks = 4, element_bytes = 2
  spyre.kernel "kernel_0" cores = 1 {
    spyre.channel LXLU -> MNIL token = 1, leftover = 1
    spyre.descriptor ddr element_bytes = 2 extent = [4] stride = [128] arg = 0
    spyre.descriptor lx element_bytes = 2 extent = [4] stride = [128]
    spyre.descriptor lx element_bytes = 2 extent = [2] stride = [128] corelet_step = 256
    spyre.descriptor ddr element_bytes = 2 extent = [64] stride = [128] arg = 1
    spyre.descriptor lx element_bytes = 2 extent = [64] stride = [128] base = 512
    spyre.descriptor lx element_bytes = 2 extent = [2] stride = [128] base = 8704 corelet_step = 256
    spyre.descriptor lx element_bytes = 2 extent = [4] stride = [128] base = 8704
    spyre.descriptor ddr element_bytes = 2 extent = [4] stride = [128] arg = 2
    spyre.unit MNIL {
      spyre.move src = 0 dst = 1
      spyre.move src = 3 dst = 4
      spyre.sig token = 0, receiver = LXLU, count = 1
      spyre.halt
    }
    spyre.unit MNIS {
      spyre.wait token = 0, sender = LXSU, count = 1
      spyre.move src = 6 dst = 7
      spyre.halt
    }
    spyre.unit LXLU {
      spyre.wait token = 0, sender = MNIL, count = 1
      spyre.push lx = 4, fifo = W
      spyre.push lx = 2, fifo = A
      spyre.sig token = 1, receiver = MNIL, count = 1
      spyre.halt
    }
    spyre.unit PT {
      spyre.ldw
      spyre.mm rows = 2
      spyre.pto
      spyre.halt
    }
    spyre.unit SFP {
      spyre.rep groups = 2, sticks = 1 start {
      } each {
        spyre.vin dst = 0, fifo = P
        spyre.v1 kind = mov, dst = 1, src = 0 {round}
        spyre.vout src = 1, fifo = O
      } end {
      }
      spyre.halt
    }
    spyre.unit LXSU {
      spyre.pull lx = 5, fifo = O
      spyre.sig token = 0, receiver = MNIS, count = 1
      spyre.halt
    }
  }
}
