"""lit over the text tests: `lit -sv test/lit`. Tools come from the virtual environment that runs lit."""

import os
import sys
from pathlib import Path

import lit.formats

here = Path(__file__).parent
config.name = "ktir"  # noqa: F821  # lit gives `config` to this file
config.test_format = lit.formats.ShTest()  # noqa: F821
config.suffixes = [".mlir", ".test"]  # noqa: F821
config.excludes = ["Inputs"]  # noqa: F821
config.test_source_root = str(here)  # noqa: F821
config.test_exec_root = str(here.parents[1] / "build" / "lit")  # noqa: F821

tools = Path(sys.executable).parent
path = [str(here / "shims"), str(tools), config.environment["PATH"]]  # noqa: F821
config.environment["PATH"] = os.pathsep.join(path)  # noqa: F821
config.environment["KTIR_TOOLS"] = str(tools)  # noqa: F821
