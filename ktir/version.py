"""The version of the package: here and nowhere else. And which package beside it has a claim on its names."""

import hashlib
import sys
from functools import cache
from pathlib import Path

__version__ = "0.1.0"


@cache
def sources_hash(package: str = "ktir") -> str:
    """Hash of every Python file of a loaded package, or of a module by itself: of ktir's, what stands behind a cached kernel besides the
    graph."""
    digest = hashlib.sha256()
    place = Path(sys.modules[package].__file__ or "")
    root = place.parent
    for path in sorted(root.rglob("*.py")) if place.name == "__init__.py" else [place]:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def torch_spyre_is_installed() -> bool:
    """Whether IBM's own PyTorch package is there, whose name `spyre` we do not take."""
    import importlib.metadata  # 10 ms, at each start of a tool

    try:
        importlib.metadata.distribution("torch_spyre")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
