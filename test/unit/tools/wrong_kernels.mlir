// Kernels in which mistakes are made.
// ----- gather
#table = affine_set<(r, c) : (r >= 0, -r + 7 >= 0, c >= 0, -c + 3 >= 0)>
#list = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#row = affine_set<(r, c) : (r >= 0, -r >= 0, c >= 0, -c + 3 >= 0)>
#same = affine_map<(r, c) -> (r, c)>
func.func @gather(%x: index, %rows: index, %y: index) attributes {grid = [4]} {
  %zero = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %from = ktdp.construct_memory_view %x, sizes: [8, 4], strides: [4, 1] {coordinate_set = #table, memory_space = #ktdp.memory_space<global>} : memref<8x4xf16>
  %numbers = ktdp.construct_memory_view %rows, sizes: [4], strides: [1] {coordinate_set = #list, memory_space = #ktdp.memory_space<global>} : memref<4xi32>
  %to = ktdp.construct_memory_view %y, sizes: [8, 4], strides: [4, 1] {coordinate_set = #table, memory_space = #ktdp.memory_space<global>} : memref<8x4xf16>
  %chosen = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %from[ind(%numbers[%i + %t]), (%j)] {variables_space_order = #same, variables_space_set = #row} : memref<8x4xf16>, memref<4xi32> -> !ktdp.access_tile<1x4xindex>
  %v = ktdp.load %chosen : <1x4xindex> -> tensor<1x4xf16>
  %w = arith.mulf %v, %v : tensor<1x4xf16>
  %place = ktdp.construct_access_tile %to[%t, %zero] {access_tile_order = #same, access_tile_set = #row} : memref<8x4xf16> -> !ktdp.access_tile<1x4xindex>
  ktdp.store %w, %place : tensor<1x4xf16>, <1x4xindex>
  return
}
// ----- exchange
#all = affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>
#first = affine_set<(i)[g] : (i == 0)>
#mirror = affine_set<(p)[c] : (p + c - 3 == 0)>
#one = affine_set<(g) : (g == 0)>
#rows = affine_set<(r, c) : (r >= 0, -r + 3 >= 0, c >= 0, -c + 1 >= 0)>
#row = affine_set<(r, c) : (r >= 0, -r >= 0, c >= 0, -c + 1 >= 0)>
#same = affine_map<(r, c) -> (r, c)>
func.func @most(%x: index, %y: index) attributes {grid = [4]} {
  %zero = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %from = ktdp.construct_memory_view %x, sizes: [4, 2], strides: [2, 1] {coordinate_set = #rows, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %mine = ktdp.construct_access_tile %from[%t, %zero] {access_tile_order = #same, access_tile_set = #row} : memref<4x2xf32> -> !ktdp.access_tile<1x2xindex>
  %v = ktdp.load %mine : <1x2xindex> -> tensor<1x2xf32>
  %number = arith.index_cast %t : index to i32
  %n = tensor.splat %number : tensor<1x2xi32>
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<1x2xf32>, tensor<1x2xi32>), groups = #one> {
  ^bb0(%group: index):
    ktdp.yield_partial %v, %n : tensor<1x2xf32>, tensor<1x2xi32>
  }
  %low = arith.constant dense<-1.0> : tensor<1x2xf32>
  %none = arith.constant dense<-1> : tensor<1x2xi32>
  %m:2 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, identity(%low, %none : tensor<1x2xf32>, tensor<1x2xi32>) : <(tensor<1x2xf32>, tensor<1x2xi32>), groups = #one> -> tensor<1x2xf32>, tensor<1x2xi32> {
  ^bb0(%a: tensor<1x2xf32>, %i: tensor<1x2xi32>, %b: tensor<1x2xf32>, %j: tensor<1x2xi32>):
    %c = arith.cmpf ogt, %a, %b : tensor<1x2xf32>
    %s = arith.select %c, %a, %b : tensor<1x2xi1>, tensor<1x2xf32>
    %w = arith.select %c, %i, %j : tensor<1x2xi1>, tensor<1x2xi32>
    ktdp.yield_reduced %s, %w : tensor<1x2xf32>, tensor<1x2xi32>
  }
  %g = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<1x2xf32>), groups = #one> {
  ^bb0(%group: index):
    ktdp.yield_partial %v : tensor<1x2xf32>
  }
  %other = ktdp.inter_tile_consume(%g) consumer_tiles_per_group = #all, producer_dependency_per_consumer = #mirror : <(tensor<1x2xf32>), groups = #one> -> tensor<1x2xf32>
  %h = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<1x2xf32>), groups = #one> {
  ^bb0(%group: index):
    ktdp.yield_partial %other : tensor<1x2xf32>
  }
  %whole = ktdp.inter_tile_gather(%h) consumer_tiles_per_group = #first, gather_dimensions = [0] : <(tensor<1x2xf32>), groups = #one> -> tensor<4x2xf32>
  %k = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4x2xf32>), groups = #one> {
  ^bb0(%group: index):
    ktdp.yield_partial %whole : tensor<4x2xf32>
  }
  %share = ktdp.inter_tile_scatter(%k) consumer_tiles_per_group = #all, scatter_dimensions = [0] : <(tensor<4x2xf32>), groups = #one> -> tensor<1x2xf32>
  %sum = arith.addf %share, %m#0 : tensor<1x2xf32>
  %to = ktdp.construct_memory_view %y, sizes: [4, 2], strides: [2, 1] {coordinate_set = #rows, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %place = ktdp.construct_access_tile %to[%t, %zero] {access_tile_order = #same, access_tile_set = #row} : memref<4x2xf32> -> !ktdp.access_tile<1x2xindex>
  ktdp.store %sum, %place : tensor<1x2xf32>, <1x2xindex>
  return
}
// ----- program
#four = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#one = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#low = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#high = affine_set<(d0) : (d0 - 2 >= 0, -d0 + 3 >= 0)>
#same = affine_map<(d0) -> (d0)>
func.func @put(%x: index) attributes {grid = [2, 2]} {
  %i, %j = ktdp.get_compute_tile_id : index, index
  %two = arith.constant 2 : index
  %a = arith.muli %i, %two : index
  %t = arith.addi %a, %j : index
  %zero = arith.constant 0 : index
  %from = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #four, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %mine = ktdp.construct_access_tile %from[%t] {access_tile_order = #same, access_tile_set = #one} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %mine : <1xindex> -> tensor<1xf16>
  %lx = ktdp.construct_memory_view %zero, sizes: [1], strides: [1] {coordinate_set = #one, memory_space = #ktdp.memory_space<ct_local>} : memref<1xf16>
  %there = ktdp.construct_access_tile %lx[%zero] {access_tile_order = #same, access_tile_set = #one} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %v, %there : tensor<1xf16>, <1xindex>
  return
}
func.func @get(%n: !ktdp.runtime_arg<index, granularity=2, upperbound=4>, %x: index, %y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %count = ktdp.runtime_arg_extract value from %n : <index, granularity=2, upperbound=4> -> index
  %lx = ktdp.construct_memory_view %zero, sizes: [1], strides: [1] {coordinate_set = #one, memory_space = #ktdp.memory_space<ct_local>} : memref<1xf16>
  %there = ktdp.construct_access_tile %lx[%zero] {access_tile_order = #same, access_tile_set = #one} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  %mine = ktdp.load %there : <1xindex> -> tensor<1xf16>
  %upper = arith.addi %x, %two : index
  %p = ktdp.construct_memory_view %x, sizes: [2], strides: [1] {coordinate_set = #low, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %q = ktdp.construct_memory_view %upper, sizes: [2], strides: [1] {coordinate_set = #high, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %both = ktdp.construct_distributed_memory_view(%p, %q : memref<2xf16>, memref<2xf16>) : memref<4xf16>
  %sum = scf.for %k = %zero to %count step %one iter_args(%acc = %mine) -> (tensor<1xf16>) {
    %at = ktdp.construct_access_tile %both[%k] {access_tile_order = #same, access_tile_set = #one} : memref<4xf16> -> !ktdp.access_tile<1xindex>
    %w = ktdp.load %at : <1xindex> -> tensor<1xf16>
    %next = arith.addf %acc, %w : tensor<1xf16>
    scf.yield %next : tensor<1xf16>
  }
  %to = ktdp.construct_memory_view %y, sizes: [4], strides: [1] {coordinate_set = #four, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %place = ktdp.construct_access_tile %to[%t] {access_tile_order = #same, access_tile_set = #one} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %sum, %place : tensor<1xf16>, <1xindex>
  return
}
func.func @main(%x: index, %y: index, %n: !ktdp.runtime_arg<index, granularity=2, upperbound=4>) {
  call @put(%x) : (index) -> ()
  call @get(%n, %x, %y) : (!ktdp.runtime_arg<index, granularity=2, upperbound=4>, index, index) -> ()
  return
}
