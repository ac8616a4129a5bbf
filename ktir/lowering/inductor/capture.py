"""The KTIR of a model, at any stage, without running it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import fx
from torch._dynamo.exc import Unsupported

from ktir.diagnostics import Diagnostic, KtirError, NoSingleGraph, close_to
from ktir.lowering.inductor import artifacts
from ktir.lowering.inductor.backend import compile_graph
from ktir.lowering.inductor.nodes import constants_now, lowered_now
from ktir.lowering.inductor.running.fallback import chain
from ktir.lowering.region_to_ktir.region import Region
from ktir.lowering.region_to_ktir.translate import translate
from ktir.runtime.logical import CARRIERS

REGION, LOGICAL, ASSEMBLY = "region", "logical", "assembly"
SEPARATOR = "// -----\n"
"""Between the programs of a graph that has several: what `ktir-opt --split-input-file` splits at."""


class _Captured(Exception):
    """Ends the compilation once the regions are known."""


def stages() -> tuple[str, ...]:
    """What `capture` takes as `stage`: `region`, the levels of KTIR, each pass by its name, `assembly`."""
    from ktir.dialects.module_level import KTIR_LEVELS
    from ktir.passes.ktir_to_allocated import STAGES

    return (REGION, *KTIR_LEVELS, *(s.name for s in STAGES), ASSEMBLY)


def capture_regions(
    model: Any, *inputs: Any, seen: Callable[[fx.GraphModule], None] | None = None, constants: dict[str, torch.Tensor] | None = None
) -> list[Region]:
    """The programs of `model(*inputs)` as data, in order: one, or several where calls on the host or collectives lie between them.

    seen: is given each graph of ATen that programs are made of. constants: takes the values of arguments that no caller of the model
    gives, by name: tensors that the model makes of numbers alone.

    Raises Unsupported and KtirError as they are. Resets Dynamo, so that nothing compiled before is taken for this model.
    """
    taken: dict[str, Region] = {}
    graphs: list[fx.GraphModule] = []
    found: list[Region] = []
    failure: list[Exception] = []

    def take(region: Region) -> str:
        translate(region)  # what is refused must become a call on the host here too
        graph = lowered_now()
        if seen is not None and graph is not None and graph not in graphs:
            graphs.append(graph)
            seen(graph)
        if constants is not None:
            constants.update(constants_now(region.arguments))
        key = f"{len(taken):064x}"
        taken[key] = region
        return key

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        try:
            compile_graph(gm, example_inputs, take, cached=False)
        except Exception as error:
            failure.append(error)
            raise
        # keys without a package, in the order in which the generated code names them; those of other attempts are not among them
        found.extend(taken[key] for key in artifacts.take_missing())
        raise _Captured

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(*inputs)
    except _Captured:
        pass
    except Exception as error:
        if failure:
            raise failure[0] from None
        if not any(isinstance(e, _Captured) for e in chain(error)):
            raise _refused_arguments(error) or _no_single_graph(error) or error from None
    if not found:
        raise KtirError("the model has nothing to compute: its results are views of its inputs, or calls on the host")
    return found


def _refused_arguments(error: Exception) -> TypeError | None:
    """What an operator of the model says of its arguments, as it does in eager; to Dynamo it is a reason to end the graph."""
    cause = error.__cause__
    called = isinstance(error, Unsupported) and "making fake tensor call" in str(error).partition("\n")[0]
    return cause if called and isinstance(cause, TypeError) else None


def _no_single_graph(error: Exception) -> NoSingleGraph | None:
    """What keeps Dynamo from making one graph of a model, at the user's line; None for other errors."""
    said = str(error).splitlines()
    if not isinstance(error, Unsupported) or said[0].startswith("Observed exception"):  # the latter: the model itself raises
        return None
    hint = next((line.partition("Hint: ")[2] for line in said if "Hint: " in line), "")
    stack = list(getattr(error, "real_stack", None) or ())
    note = f"{hint[:1].lower()}{hint[1:]}".rstrip(".")
    where = f"{stack[-1].filename}:{stack[-1].lineno}:{(stack[-1].colno or 0) + 1}" if stack else None
    notes = (Diagnostic("note", note, where),) if note else ()
    return NoSingleGraph(f"expects a model that is one graph, but TorchDynamo breaks it here: {said[0]}", where, notes)


def capture_region(model: Any, *inputs: Any) -> Region:
    """The program of `model(*inputs)`; KtirError where it is several."""
    found = capture_regions(model, *inputs)
    if len(found) > 1:
        raise KtirError(f"expects a model that is one program, but got {len(found)}, with calls on the host between them")
    return found[0]


def capture(
    model: Any, *example_inputs: Any, stage: str = LOGICAL, debuginfo: bool = False, constants: dict[str, NDArray[Any]] | None = None
) -> str:
    """The text of `model(*example_inputs)` at a stage; `debuginfo` adds the source locations.

    constants: takes the values of arguments that are none of the model's inputs, by name. A program has such for tensors that the model
    makes of numbers alone, as the places of a roll; types that NumPy lacks are held as bits. Without it, a warning names them.

    model: a function or module of PyTorch; nothing is run. stage: see `stages`; a level is taken after its last pass. A graph of several
    programs gives their texts with `// -----` between them. Raises Unsupported for what has no form in KTIR where `config.fallback` is
    "error", or at the stage asked for; KtirError for an unknown stage.
    """
    if stage not in stages():
        raise KtirError(f"unknown stage '{stage}'; the stages are {', '.join(stages())}{close_to(stage, stages())}")
    values: dict[str, torch.Tensor] = {}
    regions = capture_regions(model, *example_inputs, constants=values)
    if constants is not None:
        constants.update({name: _bits(value) for name, value in values.items()})
    elif values:
        names = ", ".join(f"'{name}'" for name in values)
        warnings.warn(
            f"the program has arguments whose values are the model's own: {names}; capture(..., constants=...) takes them", stacklevel=2
        )
    return SEPARATOR.join(_text(region, stage, debuginfo) for region in regions)


def _bits(value: torch.Tensor) -> NDArray[Any]:
    """A tensor as an array, of a type that NumPy has."""
    wanted = CARRIERS.get(str(value.dtype).removeprefix("torch."))
    return (value.detach() if wanted is None else value.detach().view(getattr(torch, wanted))).cpu().numpy()


def _text(region: Region, stage: str, debuginfo: bool) -> str:
    from ktir.assembly import print_module
    from ktir.context import context
    from ktir.dialects.module_level import Level
    from ktir.isa.assembly.text import print_program
    from ktir.lowering.compile import compile_logical
    from ktir.lowering.region_to_ktir.emit import emit
    from ktir.mlir import ir
    from ktir.package import read

    if stage == REGION:
        return region.to_json() + "\n"
    with context(), ir.Location.unknown():
        module = emit(region)
        if stage == LOGICAL:
            return print_module(module, debuginfo=debuginfo)
        seen: dict[str, str] = {}

        def observe(name: str, m: ir.Module) -> None:
            if stage in (name, Level.of(m)):
                seen[stage] = print_module(m, debuginfo=debuginfo)

        files = compile_logical(module, observe=observe)
        return print_program(read(files).program) if stage == ASSEMBLY else seen[stage]
