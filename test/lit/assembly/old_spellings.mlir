// RUN: ktir-opt %s --split-input-file --verify-diagnostics --warn-deprecated
// RUN: ktir-opt %s --split-input-file -o /dev/null 2>&1 | FileCheck %s --allow-empty --check-prefix=SILENT
// RUN: not ktir-opt %s --split-input-file --strict -o /dev/null 2>&1 | FileCheck %s --check-prefix=STRICT

// SILENT-NOT: deprecated
// STRICT-COUNT-9: error:{{.*}}deprecated

// expected-warning@+1 {{'#ktdp.spyre_memory_space' is deprecated: write '#ktdp.memory_space<ct_local, ct_id = 1>'}}
func.func private @space(memref<4xf16, #ktdp.spyre_memory_space<LX, core = 1>>)

// -----

// expected-warning@+1 {{'#ktdp.spyre_memory_space' is deprecated: memory space 'L0' has no successor}}
func.func private @space(memref<4xf16, #ktdp.spyre_memory_space<L0>>)

// -----

#one = affine_set<(g) : (g == 0)>
// expected-warning@+2 {{a type list without parentheses is deprecated: write '(tensor<4xf16>)'}}
// expected-warning@+1 {{'!ktdp.tile_future' with a bare integer set is deprecated: write 'groups = ...'}}
func.func private @future(!ktdp.tile_future<tensor<4xf16>, #one>)

// -----

#tiles = affine_set<(i)[g] : (i - g == 0)>
func.func @produce(%x: tensor<4xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles
    // expected-warning@+1 {{a type list before the future is deprecated: leave it out}}
    : tensor<4xf16> -> <(tensor<4xf16>), groups = affine_set<(g) : (g == 0)>> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4xf16>
  }
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @subscript(%x: memref<8xf16>) {
  // expected-warning@+1 {{a direct subscript without parentheses is deprecated: write '(%i + 1)'}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[%i + 1] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

func.func @view(%x: index) {
  // expected-warning@+1 {{an op without 'coordinate_set' is deprecated: write the whole box of its sizes}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}

// -----

#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#old = affine_set<(g) : (g == 0)>
func.func @dropped(%x: tensor<1x4xf16>, %z: tensor<1x4xf16>) -> tensor<4xf16> {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<1x4xf16>), groups = #old> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<1x4xf16>
  }
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%z : tensor<1x4xf16>)
    // expected-warning@+2 {{a type list without parentheses is deprecated}}
    // expected-warning@+1 {{a result without the unit dim of its role is deprecated: drop it with 'tensor.collapse_shape'}}
    : !ktdp.tile_future<tensor<1x4xf16>, groups = #old> -> tensor<4xf16> {
  ^bb0(%a: tensor<1x4xf16>, %b: tensor<1x4xf16>):
    %s = arith.addf %a, %b : tensor<1x4xf16>
    ktdp.yield_reduced %s : tensor<1x4xf16>
  }
  return %r : tensor<4xf16>
}
