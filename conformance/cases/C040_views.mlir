// C040: views of every kind
// level: L1
// expected: ok
// tags: dynamic-sizes, f16, f32, i32, i64, masks, rank-0

#box57x64 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#boxnx64 = affine_set<(d0, d1)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#boxnxn = affine_set<(d0, d1)[s0, s1] : (d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + s1 - 1 >= 0)>
#box0x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 - 1 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#point = affine_set<() : (0 == 0)>
#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
func.func @f(%x: index, %n: index, %s: index) {
  %a = ktdp.construct_memory_view %x, sizes: [57, 64], strides: [64, 1]
      {coordinate_set = #box57x64, memory_space = #ktdp.memory_space<global>} : memref<57x64xf16>
  %b = ktdp.construct_memory_view %x, sizes: [%n, 64], strides: [%s, 1]
      {coordinate_set = #boxnx64, masked, memory_space = #ktdp.memory_space<global>} : memref<?x64xf16>
  %c = ktdp.construct_memory_view %x, sizes: [%n, %n], strides: [0, 0]
      {coordinate_set = #boxnxn, memory_space = #ktdp.memory_space<global>} : memref<?x?xi32>
  %d = ktdp.construct_memory_view %x, sizes: [0, 4], strides: [4, 1]
      {coordinate_set = #box0x4, memory_space = #ktdp.memory_space<global>} : memref<0x4xf32>
  %e = ktdp.construct_memory_view %x, sizes: [], strides: []
      {coordinate_set = #point, memory_space = #ktdp.memory_space<global>} : memref<i64>
  %h = ktdp.construct_memory_view %x, sizes: [%n], strides: [1]
      {coordinate_set = #boxn, memory_space = #ktdp.memory_space<global>} : memref<8xf16>
  return
}
