// Sums of 4 rows of 100 values, 2 rows per corelet: sticks in sequence, then the lanes by the tree.
spyre.program "row_sums" {
  spyre.argument "x" role = input, sticks = 8, element_bytes = 2
  spyre.argument "y" role = output, sticks = 4, element_bytes = 2
  spyre.kernel "kernel_0" cores = 1 {
    spyre.channel LXLU -> MNIL token = 1, leftover = 1
    spyre.descriptor ddr element_bytes = 2 extent = [8] stride = [128] arg = 0
    spyre.descriptor lx element_bytes = 2 extent = [8] stride = [128]
    spyre.descriptor lx element_bytes = 2 extent = [2, 2] stride = [256, 128] corelet_step = 512
    spyre.descriptor lx element_bytes = 2 extent = [2] stride = [128] base = 1024 corelet_step = 256
    spyre.descriptor lx element_bytes = 2 extent = [4] stride = [128] base = 1024
    spyre.descriptor ddr element_bytes = 2 extent = [4] stride = [128] arg = 1
    spyre.unit MNIL {
      spyre.move src = 0 dst = 1
      spyre.sig token = 0, receiver = LXLU, count = 1
      spyre.halt
    }
    spyre.unit MNIS {
      spyre.wait token = 0, sender = LXSU, count = 1
      spyre.move src = 4 dst = 5
      spyre.halt
    }
    spyre.unit LXLU {
      spyre.wait token = 0, sender = MNIL, count = 1
      spyre.push lx = 2, fifo = I0
      spyre.sig token = 1, receiver = MNIL, count = 1
      spyre.halt
    }
    spyre.unit SFP {
      spyre.rep groups = 2, sticks = 2 start {
      } each {
        spyre.vin dst = 0, fifo = I0
        spyre.vmask dst = 1, src = 0, lanes = 100, fill = 0.0
        spyre.vacc kind = add, dst = 16, src = 1
      } end {
        spyre.vred kind = add, dst = 2, src = 16
        spyre.v1 kind = mov, dst = 3, src = 2 {round}
        spyre.vout src = 3, fifo = O
      }
      spyre.halt
    }
    spyre.unit LXSU {
      spyre.pull lx = 3, fifo = O
      spyre.sig token = 0, receiver = MNIS, count = 1
      spyre.halt
    }
  }
}
