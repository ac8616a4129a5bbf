"""Every test here is of tensors on the device; the folder has helpers."""

import sys
from pathlib import Path

from ktir.device.autoload import register

sys.path.insert(0, str(Path(__file__).parent))
register()
