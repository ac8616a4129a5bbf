"""What the command line of `ktir-opt` asks for: the passes, where to stop, what to show on the way."""

from collections.abc import Callable
from pathlib import Path

from ktir import registry
from ktir.diagnostics import KtirError, close_to
from ktir.mlir import ir
from ktir.pipeline import (
    MlirPass,
    NamedPipeline,
    Pass,
    Pipeline,
    Step,
    is_of_mlir,
    nested_as_needed,
    options_of,
    parse_pipeline,
)
from ktir.tools.shared.flags import CommandLine, UsageError
from ktir.tools.shared.table import FLAGS
from ktir.tools.shared.watch import Dumps


def pipeline_of(line: CommandLine) -> Pipeline:
    """The passes that the command line gives."""
    text, flags = line.values.get("pass-pipeline"), line.others
    if text is not None and flags:
        raise UsageError(f"'--pass-pipeline' and '--{flags[0][0]}' cannot be given together")
    if text is not None:
        return parse_pipeline(text)
    steps: list[Step] = []
    named: list[NamedPipeline] = []
    for name, options in flags:
        if registry.pass_class(name) or (not is_of_mlir(name) and registry.offered("ktir.passes", name)):
            found = parse_pipeline(f"{name}{{{options}}}")
            steps += found.steps
            named += found.named
            continue
        step = Step(MlirPass(f"{name}{{{options}}}" if options else name))
        try:
            steps.append(nested_as_needed(step, ir.Context.current))
        except KtirError as error:
            if "does not refer to a registered pass" in error.message:
                near = close_to(name, (*registry.known_passes(), *(flag.name for flag in FLAGS)))
                raise UsageError(f"unknown command line argument '--{name}'{near}; try 'ktir-opt --help'") from None
            raise
    return Pipeline(tuple(steps), tuple(named))


def stopped(pipeline: Pipeline, line: CommandLine) -> Pipeline:
    """`pipeline` up to the pass that `--ktir-stop-after` names; options of it that nothing up to there takes are refused."""
    last = line.values.get("ktir-stop-after")
    if last is None:
        return pipeline
    names = [step.name for step in pipeline]
    if last not in names:
        raise UsageError(f"'--ktir-stop-after={last}': the pipeline has no such pass (passes: {', '.join(dict.fromkeys(names)) or 'none'})")
    end = names.index(last) + 1
    for whole in pipeline.named:
        for name, text in options_of(whole).items():
            takers = [step for step in pipeline if isinstance(step.item, Pass) and not step.item.analysis and name in options_of(step.item)]
            if takers and takers[0] not in pipeline.steps[:end]:
                first = takers[0].name
                raise UsageError(
                    f"'--ktir-stop-after={last}' leaves out '{first}', the first pass that takes '{text}' of '{whole.name}'; "
                    f"did you mean '--ktir-stop-after={first}'?"
                )
    return Pipeline(pipeline.steps[:end])


def check_shown(line: CommandLine, pipeline: Pipeline, context: ir.Context) -> None:
    """Raises UsageError where passes are to be shown that nobody knows; such as are known and do not run are nothing to show."""
    for flag in ("mlir-print-ir-before", "mlir-print-ir-after"):
        for name in line.list(flag):
            if name in (own := [step.name for step in pipeline]) or name in registry.known_passes():
                continue
            try:
                nested_as_needed(Step(MlirPass(name)), context)
            except KtirError:
                near = close_to(name, (*own, *registry.known_passes()))
                raise UsageError(f"'--{flag}={name}': there is no pass of that name{near}; try 'ktir-opt --list-passes'") from None


def dumps_of(line: CommandLine, text: Callable[..., str]) -> Dumps:
    """When the module is to be shown between passes, and where."""
    only_changes = line.on("mlir-print-ir-after-change")
    selected = line.list("mlir-print-ir-before") or line.list("mlir-print-ir-after") or line.on("mlir-print-ir-before-all")
    folder = line.values.get("mlir-print-ir-tree-dir")
    after_all = line.on("mlir-print-ir-after-all") or (only_changes and not line.list("mlir-print-ir-after"))
    return Dumps(
        text,
        None if line.on("mlir-print-ir-before-all") else line.list("mlir-print-ir-before"),
        None if after_all or (folder and not selected) else line.list("mlir-print-ir-after"),
        only_changes,
        Path(folder) if folder else None,
    )
