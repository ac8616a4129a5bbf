// C003: blanks around the x of a tile type are accepted
// level: L0
// expected: ok

func.func private @f(!ktdp.access_tile< 4 x ? x index >)
