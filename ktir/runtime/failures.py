"""Reports of failures, written when something fails for the first time: what, where, with which versions and options, and what the cards
held. `torch.spyre.get_diagnostic_report` reads the newest one.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ktir import config
from ktir.diagnostics import OutOfRange, Unsupported
from ktir.runtime import metrics, notices, store
from ktir.runtime.memory.card import DeviceOutOfMemory, cards
from ktir.version import __version__

Category = Literal["compile", "unimplemented", "runtime_launch", "out_of_memory", "unknown"]
MOST = 50
"""Reports that are kept, the newest ones."""
_REPORTED = "_ktir_reported"
"""An attribute of errors on their way out, whose words may change on it."""
_VARIABLES = (
    *("SENCORES", "AIU_WORLD_SIZE", "SPYRE_DEVICES", "SPYRE_VISIBLE_DEVICES", "LOCAL_RANK"),
    *("FLEX_DEVICE", "FLEX_COMPUTE", "FLEX_MOCK_DEVICE_MEMORY_SIZE"),
    *("TORCH_LOGS", "TORCH_COMPILE_DEBUG"),
)


def folder() -> Path:
    """Where reports are: beside the packages, or in the temporary directory."""
    return (store.folder() or Path(tempfile.gettempdir()) / "ktir") / "failures"


def capture(error: BaseException, category: Category = "unknown", **runtime: Any) -> None:
    """Write a report, unless this process has written one of such a failure, or of what an error comes from. runtime: what is known of the
    program. Values for which a program is not proved are no failure: the executor takes them. Never raises.
    """
    if any(getattr(e, _REPORTED, False) for e in (error, error.__cause__)):
        return
    if isinstance(error, DeviceOutOfMemory):
        category = "out_of_memory"
    elif isinstance(error, Unsupported):
        category = "unimplemented"
    if isinstance(error, OutOfRange) or not notices.is_new(f"report of {category}", f"{type(error).__name__}: {error}"):
        return
    setattr(error, _REPORTED, True)
    with suppress(Exception):  # a report is no reason for a second failure
        _write(category, _report(error, category, runtime))


def latest(place: str | os.PathLike[str] | None = None) -> dict[str, Any] | None:
    """The newest report that can be read, with its path as `_report_path`; None where there is none. place: another folder."""
    for path in sorted((Path(place) if place else folder()).glob("failure_*.json"), reverse=True):
        with suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found | {"_report_path": str(path)}
    return None


def _report(error: BaseException, category: Category, runtime: dict[str, Any]) -> dict[str, Any]:
    torch = sys.modules.get("torch")
    launches = metrics.total()
    return {
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "pid": os.getpid(),
            "platform": platform.platform(),
            "python_version": sys.version,
            "torch_version": getattr(torch, "__version__", None),
            "ktir_version": __version__,
        },
        "failure": {
            "category": category,
            "exception_type": type(error).__name__,
            "message": str(error),
            "traceback": "".join(traceback.format_exception(error)),
        },
        "environment": {name: os.environ.get(name, "") for name in (*config.VARIABLES, *_VARIABLES)},
        "runtime": {"chip": launches.chip, "executor": launches.executor, "torch": launches.torch, **runtime},
        "hardware_state": [{"card": c.index, "used_bytes": c.used, "capacity_bytes": c.capacity, "target": c.target.name} for c in cards()],
    }


def _write(category: Category, report: dict[str, Any]) -> None:
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    name = place / f"failure_{time.time_ns():020}_{os.getpid()}_{category}.json"
    unready = name.with_suffix(".part")
    unready.write_text(json.dumps(report, indent=1, default=str), encoding="utf-8")
    unready.replace(name)
    for old in sorted(place.glob("failure_*.json"))[:-MOST]:
        old.unlink(missing_ok=True)
