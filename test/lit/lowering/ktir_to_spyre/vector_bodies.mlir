// Masks on the vector unit: scores under a causal mask whose positions come from a tensor of i32, pad lanes as a mask of their own, an
// integer constant; no instruction for what only widens.
// RUN: ktir-opt %s --ktir-allocate-scratchpad --convert-ktir-to-spyre | FileCheck %s

// CHECK: spyre.rep
// CHECK: spyre.vin dst = [[SCORE:[0-9]+]], fifo = I0
// CHECK: spyre.vin dst = [[KEY:[0-9]+]], fifo = I1
// CHECK: spyre.vconst dst = [[FIVE:[0-9]+]], value = 5
// CHECK: spyre.v2 kind = cmpi_sle, dst = [[SEEN:[0-9]+]], src = [[KEY]], src2 = [[FIVE]]
// CHECK: spyre.vlive dst = [[LIVE:[0-9]+]], lanes = 100
// CHECK: spyre.v2 kind = andi, dst = [[BOTH:[0-9]+]], src = [[SEEN]], src2 = [[LIVE]]
// CHECK: spyre.vconst dst = [[LEAST:[0-9]+]], value = -inf
// CHECK: spyre.v3 kind = select, dst = {{[0-9]+}}, src = [[BOTH]], src2 = [[SCORE]], src3 = [[LEAST]]
// CHECK: spyre.vacc kind = max
#box = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#row = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#column = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
module attributes {ktir.level = "tiled"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input", ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [256], strides = [1]>, ktir.layout = #ktir.layout<size = [256], device = [4, 64], strides = [64, 1], dtype = f32, arrangement = standard, pad = zero>}, %i: index {ktir.name = "i", ktir.role = "input", ktir.host = #ktir.host_view<arg = 1, offset = 0, size = [128], strides = [1]>, ktir.layout = #ktir.layout<size = [128], device = [2, 64], strides = [64, 1], dtype = i32, arrangement = standard, pad = zero>}, %y: index {ktir.name = "y", ktir.role = "output", ktir.host = #ktir.host_view<arg = 2, offset = 0, size = [128], strides = [1]>, ktir.layout = #ktir.layout<size = [128], device = [2, 64], strides = [64, 1], dtype = f32, arrangement = standard, pad = uninit>}) {
    call @kernel(%x, %i, %y) : (index, index, index) -> ()
    return
  }
  func.func @kernel(%x: index, %i: index, %y: index) attributes {grid = [1], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %vx = ktdp.construct_memory_view %x, sizes: [2, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<2x2x64xf32>
    %tx = ktdp.construct_access_tile %vx[0, 0, 0] {access_tile_order = #id, access_tile_set = #box} : memref<2x2x64xf32> -> !ktdp.access_tile<2x2x64xindex>
    %scores = ktdp.load %tx : <2x2x64xindex> -> tensor<2x2x64xf32>
    %vi = ktdp.construct_memory_view %i, sizes: [2, 1, 64], strides: [64, 64, 1] {coordinate_set = #row, memory_space = #ktdp.memory_space<global>} : memref<2x1x64xi32>
    %ti = ktdp.construct_access_tile %vi[0, 0, 0] {access_tile_order = #id, access_tile_set = #row} : memref<2x1x64xi32> -> !ktdp.access_tile<2x1x64xindex>
    %keys = ktdp.load %ti : <2x1x64xindex> -> tensor<2x1x64xi32>
    %least = arith.constant 0xFF800000 : f32
    %e = tensor.empty() : tensor<1x2x64xf32>
    %init = linalg.fill ins(%least : f32) outs(%e : tensor<1x2x64xf32>) -> tensor<1x2x64xf32>
    %max = linalg.generic {indexing_maps = [affine_map<(p, s, l) -> (s, p, l)>, affine_map<(p, s, l) -> (s, 0, l)>, affine_map<(p, s, l) -> (0, p, 0)>], iterator_types = ["parallel", "reduction", "reduction"]}
        ins(%scores, %keys : tensor<2x2x64xf32>, tensor<2x1x64xi32>) outs(%init : tensor<1x2x64xf32>) {
    ^bb0(%score: f32, %key: i32, %o: f32):
      %c5 = arith.constant 5 : i32
      %seen = arith.cmpi sle, %key, %c5 : i32
      %s = linalg.index 1 : index
      %l = linalg.index 2 : index
      %c64 = arith.constant 64 : index
      %first = arith.muli %s, %c64 : index
      %at = arith.addi %first, %l : index
      %c100 = arith.constant 100 : index
      %live = arith.cmpi ult, %at, %c100 : index
      %both = arith.andi %seen, %live : i1
      %inf = arith.constant 0xFF800000 : f32
      %chosen = arith.select %both, %score, %inf : f32
      %r = arith.maximumf %o, %chosen : f32
      linalg.yield %r : f32
    } -> tensor<1x2x64xf32>
    %vy = ktdp.construct_memory_view %y, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #column, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf32>
    %ty = ktdp.construct_access_tile %vy[0, 0, 0] {access_tile_order = #id, access_tile_set = #column} : memref<1x2x64xf32> -> !ktdp.access_tile<1x2x64xindex>
    ktdp.store %max, %ty : tensor<1x2x64xf32>, <1x2x64xindex>
    return
  }
}
