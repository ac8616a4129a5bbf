"""What is computed element by element of the sums of a matmul goes with the matmul: before splits of columns, and once for all readers."""
