"""Graphs that are compiled with `spyre_instrument_ops`: their programs are kept, to show the IR of these ops after any pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ktir import config
from ktir.diagnostics import KtirError, close_to
from ktir.lowering.inductor.explored import RegionCompiler
from ktir.lowering.region_to_ktir.region import Region

_MOST = 64
"""Programs that are kept, those compiled last."""


class _Kept(NamedTuple):
    ops: tuple[str, ...]
    region: Region


_kept: dict[str, _Kept] = {}


@contextmanager
def kept(compile_region: RegionCompiler) -> Iterator[RegionCompiler]:
    """Keep what is compiled inside the block, if ops are asked for: `compile_region`, watched."""
    ops = config.current().spyre_instrument_ops
    if not ops:
        yield compile_region
        return

    def watched(region: Region) -> str:
        key = compile_region(region)
        _kept.pop(key, None)
        _kept[key] = _Kept(ops, region)
        while len(_kept) > _MOST:
            del _kept[next(iter(_kept))]
        return key

    yield watched


def asked() -> tuple[str, ...]:
    """All ops that graphs were compiled for, in order."""
    return tuple(dict.fromkeys(op for each in _kept.values() for op in each.ops))


def ir(op: str, after: str | None) -> dict[str, list[str]]:
    """Lines of an op by the name of the pass. Raises KtirError where there are none."""
    from ktir.explore.of_ops import levels

    known = asked()
    if not any(op == each or op.startswith(f"{each}_") for each in known):
        hint = close_to(op, known) if known else "; none was compiled with it"
        raise KtirError(f"there is IR of ops that 'spyre_instrument_ops' names, but got '{op}'{hint}")
    found: dict[str, list[str]] = {}
    for each in _kept.values():
        for name, lines in levels(each.region, op).items():
            found.setdefault(name, []).extend(lines)
    if not any(found.values()):
        raise KtirError(f"no node of what was compiled is '{op}'")
    if after is None:
        return found
    if after not in found:
        raise KtirError(f"no pass of theirs is '{after}'{close_to(after, found)}; there are {', '.join(found)}")
    return {after: found[after]}
