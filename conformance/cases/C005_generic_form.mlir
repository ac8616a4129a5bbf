// C005: operations in generic form, their attributes as properties
// level: L0
// expected: ok
// tags: f16, text

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id = affine_map<(d0) -> (d0)>
"func.func"() <{function_type = (index) -> (), sym_name = "f"}> ({
^bb0(%x: index):
  %v = "ktdp.construct_memory_view"(%x) <{operandSegmentSizes = array<i32: 1, 0, 0>, coordinate_set = #box,
      memory_space = #ktdp.memory_space<global>, static_sizes = array<i64: 4>, static_strides = array<i64: 1>}> : (index) -> memref<4xf16>
  %t = "ktdp.construct_access_tile"(%v, %x) <{operandSegmentSizes = array<i32: 1, 1, 0>, access_tile_set = #box,
      access_tile_order = #id, base_map = #id}> : (memref<4xf16>, index) -> !ktdp.access_tile<4xindex>
  %a = "ktdp.load"(%t) : (!ktdp.access_tile<4xindex>) -> tensor<4xf16>
  "ktdp.store"(%a, %t) : (tensor<4xf16>, !ktdp.access_tile<4xindex>) -> ()
  "func.return"() : () -> ()
}) : () -> ()
