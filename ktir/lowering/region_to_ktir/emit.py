"""RegionIR -> its logical KTIR: the text, which is also what a program keeps for the executor, and the MLIR module that it reads as."""

from __future__ import annotations

from ktir.diagnostics import collect, remark
from ktir.lowering.region_to_ktir.region import Region
from ktir.lowering.region_to_ktir.translate import translate
from ktir.mlir import ir


def emit(region: Region) -> ir.Module:
    """The module of a region, in the current context, verified. Raises NestRefused for a nest that has no logical form."""
    return read(write(region))


def write(region: Region) -> str:
    """The text of a region, ops of ours in generic form. Raises NestRefused for a nest that has no logical form.

    Whoever listens to remarks hears by which rung of the ladder (`accesses`) each access was translated.
    """
    translation = translate(region)
    for rung in translation.rungs:
        remark("missed" if rung.reason else "passed", "translate", str(rung), rung.nest.source)
    return translation.text


def read(text: str) -> ir.Module:
    """The module of such a text, in the current context, verified."""
    with collect(ir.Context.current):
        return ir.Module.parse(text)
