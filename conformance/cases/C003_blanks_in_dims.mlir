// C003: blanks around the x of a tile type are accepted
// level: L0
// expected: ok
// tags: text

func.func private @f(!ktdp.access_tile< 4 x ? x index >)
