"""The Spyre instruction set: public, ours, faithful in structure to what is public about the chip.

One table of units, FIFOs, instructions and fields (`units`, `instructions`, `descriptor`) that the `spyre` dialect, the assembler, the
binary encoder, the lowering and the emulator all read. `program` holds a decoded program; `encoding` and `assembly` write and read it;
`validate` says whether it can be written, `verify` what is provably wrong with what it does.
"""
