"""The literal machine: a program's assembly executed word by word, in plain Python numbers, as the pages of the instruction set say.

It is the definition that the emulator is held against, so it shares nothing with it: no function of the package is used here, and the
tables of the instruction set are written out again. Read `assembly` (text to plain data), `arithmetic` (what a lane computes), `elementary`
(the functions that are algorithms of their own) and `machine` (memory, walks, units); a well-formed program is taken for granted.
"""

from .machine import run

__all__ = ["run"]
