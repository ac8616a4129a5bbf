"""lit over the text tests: `lit -sv test/lit`. Tools come from the virtual environment that runs lit."""

from pathlib import Path

import ktir.testing

ktir.testing.configure(config, __file__, name="ktir", output=Path(__file__).parents[2] / "build" / "lit")  # noqa: F821  # lit gives it
