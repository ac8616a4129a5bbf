"""Draws the pictures of the pages: `python docs/pictures/draw.py` writes them beside this file, `draw.py machine.svg ...` only these.

Each module `draw_*` has a table `PICTURES`, from a file's name to the function that draws it. What shows data computes them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import draw_chip
import draw_design
import draw_numbers
import draw_programs
import draw_tutorials
from canvas import INK, Picture

__all__ = ["INK", "PICTURES", "Picture"]
HERE = Path(__file__).parent
PICTURES: dict[str, Callable[[], Picture]] = {}
for _module in (draw_design, draw_tutorials, draw_chip, draw_programs, draw_numbers):
    PICTURES |= _module.PICTURES

if __name__ == "__main__":
    for _name in sys.argv[1:] or PICTURES:
        (HERE / _name).write_text(PICTURES[_name]().svg())
