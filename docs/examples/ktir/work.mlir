func.func private @f() attributes {grid = [29], ktir.rows = array<i64: 57>, ktir.work = #ktir.work<splits = [1, 29, 1], tile = [2, 2, 64]>}

// -----

// expected-error@+1 {{work numbers must be positive}}
func.func private @f() attributes {a = #ktir.work<splits = [0], tile = [1]>}
