// Softmax of each row of a 57 x 100 matrix, on four tiles.
//
//   ktir-opt examples/softmax.mlir --ktir-canonicalize --cse     reads, checks and transforms it
//   ktir.execute("examples/softmax.mlir", "softmax", [x, y])     runs it on NumPy arrays of float16
//
// A kernel is a function with a grid. All its tiles run the same text; %t tells them apart. An address is counted in elements of the
// view that is built on it. Start from here: what follows is every construct that most kernels need.

// Sets of coordinates: which part of memory a view owns, and which part of a view a tile takes.
#matrix = affine_set<(r, c)[rows] : (r >= 0, -r + rows - 1 >= 0, c >= 0, -c + 99 >= 0)>
#block  = affine_set<(r, c) : (r >= 0, -r + 4 >= 0, c >= 0, -c + 99 >= 0)>
#in_order = affine_map<(r, c) -> (r, c)>

func.func @softmax(%x: index, %y: index) attributes {grid = [4]} {
  %zero = arith.constant 0 : index
  %share = arith.constant 15 : index        // rows of a tile: 57 / 4, rounded up
  %block = arith.constant 5 : index         // rows that are computed together
  %all = arith.constant 57 : index
  %columns = arith.constant 100 : index

  // Where this tile's rows begin, and how many it has: 15, 15, 15 and 12.
  %t = ktdp.get_compute_tile_id : index
  %first = arith.muli %t, %share : index
  %left = arith.subi %all, %first : index
  %rows = arith.minsi %left, %share : index
  %skipped = arith.muli %first, %columns : index
  %x_here = arith.addi %x, %skipped : index
  %y_here = arith.addi %y, %skipped : index

  // A view gives memory a shape. This one has a size that is known at run time only and is `masked`: beyond it, reads give zero and writes
  // are dropped. So the last tile runs the same loop as the others, although its last block has two rows and not five.
  %from = ktdp.construct_memory_view %x_here, sizes: [%rows, 100], strides: [100, 1]
      {coordinate_set = #matrix, masked, memory_space = #ktdp.memory_space<global>} : memref<?x100xf16>
  %to = ktdp.construct_memory_view %y_here, sizes: [%rows, 100], strides: [100, 1]
      {coordinate_set = #matrix, masked, memory_space = #ktdp.memory_space<global>} : memref<?x100xf16>

  // Reductions begin with the value of `outs`: the identity, written down.
  %lowest = arith.constant dense<0xFF800000> : tensor<5xf32>
  %nothing = arith.constant dense<0.0> : tensor<5xf32>

  scf.for %i = %zero to %share step %block {
    // An access tile chooses coordinates of a view, a load makes a tensor of them.
    %from_tile = ktdp.construct_access_tile %from[%i, 0]
        {access_tile_set = #block, access_tile_order = #in_order} : memref<?x100xf16> -> !ktdp.access_tile<5x100xindex>
    %narrow = ktdp.load %from_tile : <5x100xindex> -> tensor<5x100xf16>

    // Every op rounds once to its result type: computed in f32, the result is rounded to f16 only at the end.
    %v = arith.extf %narrow : tensor<5x100xf16> to tensor<5x100xf32>
    %like = tensor.empty() : tensor<5x100xf32>
    %max = linalg.reduce { arith.maximumf } ins(%v : tensor<5x100xf32>) outs(%lowest : tensor<5xf32>) dimensions = [1]
    %maxima = linalg.broadcast ins(%max : tensor<5xf32>) outs(%like : tensor<5x100xf32>) dimensions = [1]
    %below = arith.subf %v, %maxima : tensor<5x100xf32>
    %e = math.exp %below : tensor<5x100xf32>
    %sum = linalg.reduce { arith.addf } ins(%e : tensor<5x100xf32>) outs(%nothing : tensor<5xf32>) dimensions = [1]
    %sums = linalg.broadcast ins(%sum : tensor<5xf32>) outs(%like : tensor<5x100xf32>) dimensions = [1]
    %q = arith.divf %e, %sums : tensor<5x100xf32>
    %result = arith.truncf %q : tensor<5x100xf32> to tensor<5x100xf16>

    %to_tile = ktdp.construct_access_tile %to[%i, 0]
        {access_tile_set = #block, access_tile_order = #in_order} : memref<?x100xf16> -> !ktdp.access_tile<5x100xindex>
    ktdp.store %result, %to_tile : tensor<5x100xf16>, <5x100xindex>
  }
  return
}
