// RUN: ktir-opt %s | ktir-opt --verify-roundtrip | FileCheck %s

// CHECK-LABEL: spyre.program "everything" {
spyre.program "everything" {
  // CHECK-NEXT: spyre.argument "x" role = input, sticks = 512, element_bytes = 2
  spyre.argument "x" role = input, sticks = 512, element_bytes = 2
  // CHECK-NEXT: spyre.kernel "k" cores = 2 {
  spyre.kernel "k" cores = 2 {
    // CHECK-NEXT: spyre.table [0, 8192]
    spyre.table [0, 8192]
    // CHECK-NEXT: spyre.group [0, 0]
    spyre.group [0, 0]
    // CHECK-NEXT: spyre.channel LXLU -> MNIL token = 0, leftover = 2
    spyre.channel LXLU -> MNIL token = 0, leftover = 2
    // CHECK-NEXT: spyre.descriptor ddr element_bytes = 2 extent = [4, 64] stride = [8192, 128] arg = 0 core_table = 0 level_step = [16384]
    // CHECK-SAME: bounds = [#spyre.bound<limit = 57, dim = 1, level = 0, level_step = 64>, #spyre.bound<table = 0>] {pad = "-inf"}
    spyre.descriptor ddr element_bytes = 2 extent = [4, 64] stride = [8192, 128] arg = 0 core_table = 0 level_step = [16384]
      bounds = [#spyre.bound<limit = 57, dim = 1, level = 0, level_step = 64>, #spyre.bound<table = 0>] {pad = "-inf"}
    // CHECK-NEXT: spyre.descriptor lx element_bytes = 4 extent = [] stride = [] base = 1024 buffers = 2 rotate_step = 8192 corelet_step = 256
    // CHECK-SAME: rotate_levels = [0, 2] {splat}
    spyre.descriptor lx element_bytes = 4 extent = [] stride = [] base = 1024 buffers = 2 rotate_step = 8192 corelet_step = 256
      rotate_levels = [0, 2] {splat}
    // CHECK-NEXT: spyre.descriptor ddr element_bytes = 4 extent = [3] stride = [400] arg = 0 lane_stride = 12
    spyre.descriptor ddr element_bytes = 4 extent = [3] stride = [400] arg = 0 lane_stride = 12
    // CHECK-NEXT: spyre.unit MNIL {
    spyre.unit MNIL {
      // CHECK-NEXT: spyre.loop trips = 4, level = 0, region = 1 {
      spyre.loop trips = 4, level = 0, region = 1 {
        // CHECK-NEXT: spyre.wait token = 0, sender = LXLU, count = 1
        spyre.wait token = 0, sender = LXLU, count = 1
        // CHECK-NEXT: spyre.move src = 0 dst = 1 group = 0
        spyre.move src = 0 dst = 1 group = 0
        // CHECK-NEXT: spyre.move src = 0 dst = 1 index = 2 size = 50
        spyre.move src = 0 dst = 1 index = 2 size = 50
        // CHECK-NEXT: spyre.fill lx = 1, value = -1.5
        spyre.fill lx = 1, value = -1.500000e+00
        // CHECK-NEXT: spyre.fill lx = 1, value = -inf
        spyre.fill lx = 1, value = 0xff800000
        // CHECK-NEXT: }
      }
      // CHECK-NEXT: spyre.halt
      spyre.halt
    }
    // CHECK: spyre.unit SFP {
    spyre.unit SFP {
      // CHECK-NEXT: spyre.rep groups = 2, sticks = 4 start {
      // CHECK-NEXT: } each {
      spyre.rep groups = 2, sticks = 4 start {
      } each {
        // CHECK-NEXT: spyre.vmask dst = 1, src = 0, lanes = 200, fill = nan
        spyre.vmask dst = 1, src = 0, lanes = 200, fill = nan
      // CHECK-NEXT: } end {
      } end {
        // CHECK-NEXT: spyre.v1 kind = exp, dst = 1, src = 16 {round}
        spyre.v1 kind = exp, dst = 1, src = 16 {round}
        // CHECK-NEXT: }
      }
    }
  }
}
