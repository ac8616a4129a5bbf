"""The file `program.bin`: words and descriptors as records, and what holds for each of them alone."""
