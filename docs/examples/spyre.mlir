// y = exp(x) for 4 sticks: MNIL loads them into the scratchpad, the corelets compute, MNIS stores the result.
spyre.program "exp" {
  spyre.argument "x" role = input, sticks = 4, element_bytes = 2
  spyre.argument "y" role = output, sticks = 4, element_bytes = 2
  spyre.kernel "kernel_0" cores = 1 {
    spyre.channel LXLU -> MNIL token = 1, leftover = 1
    spyre.descriptor ddr element_bytes = 2 extent = [4] stride = [128] arg = 0
    spyre.descriptor lx element_bytes = 2 extent = [4] stride = [128]
    spyre.descriptor lx element_bytes = 2 extent = [2] stride = [128] corelet_step = 256
    spyre.descriptor lx element_bytes = 2 extent = [2] stride = [128] base = 512 corelet_step = 256
    spyre.descriptor lx element_bytes = 2 extent = [4] stride = [128] base = 512
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
      spyre.rep groups = 2, sticks = 1 start {
      } each {
        spyre.vin dst = 0, fifo = I0
        spyre.v1 kind = exp, dst = 1, src = 0 {round}
        spyre.vout src = 1, fifo = O
      } end {
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
