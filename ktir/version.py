"""The version of the package: here and nowhere else. And which package beside it has a claim on its names."""

from functools import cache

__version__ = "0.1.0"


@cache
def torch_spyre_is_installed() -> bool:
    """Whether IBM's own PyTorch package is there, whose name `spyre` we do not take."""
    import importlib.metadata  # 10 ms, at each start of a tool

    try:
        importlib.metadata.distribution("torch_spyre")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
