"""Passes and pipelines: typed options, one pipeline text for our passes and MLIR's, and the loop that runs them.

Text: `builtin.module(canonicalize,ktir-tile{rows=16},func.func(cse))`; the outer anchor may be left out. Our passes run on the module;
every name that is not ours is handed to MLIR's own parser.
"""

import dataclasses
import itertools
import re
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from ktir import registry
from ktir.diagnostics import REMARK_KINDS, Diagnostic, KtirError, PassError, close_to, collect, count, remark, verify
from ktir.mlir import arith, ir, passmanager

MODULE = "builtin.module"
_CONSTANT = arith.ConstantOp.OPERATION_NAME


@dataclass(frozen=True)
class AtLeast:
    """In `Annotated[int, AtLeast(1)]`: what an option that is a number has to be at least, unless it is None."""

    least: float


@dataclass(frozen=True)
class _Optioned:
    """What has a name in pipeline text, and options, its fields. Of type `Literal`, an option is one of several words; ValueError for
    another one, and for a number that is not `AtLeast` what its type says."""

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _check_options(self)

    def __str__(self) -> str:
        """Pipeline text: the name and the options that differ from their defaults."""
        changed = options_of(self).values()
        return self.name + (f"{{{' '.join(changed)}}}" if changed else "")


@dataclass(frozen=True)
class Pass(_Optioned):
    """Base of our passes. A pass is a frozen dataclass: its fields, all with defaults, are its options.

    `tolerance` is the relative difference that the pass may make in a sum of floats, besides that of another order (0: same bits), or,
    with `rounds_terms`, in each of its terms; `allowed` what it may have made in a module.
    `run` changes the module in place and raises KtirError for a program that it refuses.
    """

    tolerance: ClassVar[float] = 0.0
    rounds_terms: ClassVar[bool] = False
    analysis: ClassVar[bool] = False
    """Whether the pass only looks: the module stays as it is."""

    def run(self, module: ir.Module) -> None:
        """Transforms `module`."""
        raise NotImplementedError(f"pass '{self.name}' defines no run")

    def allowed(self, module: ir.Module) -> float:
        """The relative difference that the pass may have caused in `module`, which it has left like this."""
        return self.tolerance

    def remark(self, kind: str, message: str, location: ir.Location | None = None) -> None:
        """Reports a decision; `kind` is one of `diagnostics.REMARK_KINDS`, else ValueError. Read them with `diagnostics.remarks`."""
        if kind not in REMARK_KINDS:
            raise ValueError(f"a remark is of kind {', '.join(REMARK_KINDS)}, but got '{kind}'")
        remark(kind, self.name, message, location)

    def count(self, what: str, number: int = 1) -> None:
        """Adds to a statistic, shown by `--mlir-pass-statistics`; `what` is worded as `calls-inlined`."""
        count(self.name, what, number)


@dataclass(frozen=True)
class NamedPipeline(_Optioned):
    """Base of pipelines that have a name: in pipeline text the name stands for the passes of `text()`. Fields are options, as of a pass."""

    def text(self) -> str:
        """Pipeline text of the passes that the name stands for."""
        raise NotImplementedError(f"pipeline '{self.name}' defines no text")

    def passes_over(self, item: "Pass | MlirPass", module: ir.Module) -> bool:
        """Whether one of its passes has nothing to do on `module`, as it is when the pass's turn comes."""
        return False


@dataclass(frozen=True)
class MlirPass:
    """A pass of MLIR's, known by its text only."""

    text: str

    @property
    def name(self) -> str:
        return self.text.partition("{")[0].strip()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Step:
    """One pass and the ops it runs on: `anchors` is the nest of op names below the module, empty for the module itself."""

    item: Pass | MlirPass
    anchors: tuple[str, ...] = ()
    of: NamedPipeline | None = dataclasses.field(default=None, compare=False)
    """The pipeline whose name stood for it."""

    @property
    def name(self) -> str:
        return self.item.name

    def __str__(self) -> str:
        return _nested(self.anchors, str(self.item))


@dataclass(frozen=True)
class Pipeline:
    """Passes in the order in which they run. `str()` gives text that parses to an equal pipeline."""

    steps: tuple[Step, ...] = ()
    named: tuple[NamedPipeline, ...] = dataclasses.field(default=(), compare=False)
    """Pipelines whose names stood for some of the steps."""

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __str__(self) -> str:
        groups: list[tuple[tuple[str, ...], list[str]]] = []
        for step in self.steps:
            if not groups or groups[-1][0] != step.anchors:
                groups.append((step.anchors, []))
            groups[-1][1].append(str(step.item))
        return f"{MODULE}({','.join(_nested(anchors, ','.join(items)) for anchors, items in groups)})"


PassCallback = Callable[[Step, ir.Module], None]


@dataclass(frozen=True)
class Reproducer:
    """Where to leave a module that makes a pass fail, and how to print it.

    The file is written before each pass, so that it is there even if the process dies, and removed when all have succeeded.
    """

    path: Path
    print_module: Callable[[ir.Module], str]

    def write(self, module: ir.Module, pipeline: Pipeline, verify_each: bool) -> None:
        """Leaves the module and what to run on it."""
        text = str(pipeline).replace("\\", "\\\\").replace('"', '\\"')
        self.path.write_text(
            f"{self.print_module(module)}\n{{-#\n  external_resources: {{\n    mlir_reproducer: {{\n"
            f'      pipeline: "{text}",\n      disable_threading: true,\n      verify_each: {str(verify_each).lower()}\n'
            "    }\n  }\n#-}\n"
        )


_REPRODUCER = re.compile(r'\{-#.*?mlir_reproducer\s*:\s*\{\s*pipeline\s*:\s*"((?:[^"\\]|\\.)*)"(.*?)#-\}', re.DOTALL)


@dataclass(frozen=True)
class Reproduction:
    """What a reproducer file asks for: run `pipeline` on the module `text`, whose lines keep their numbers."""

    text: str
    pipeline: Pipeline
    verify_each: bool


def read_reproducer(text: str) -> Reproduction | None:
    """What `text` asks for, or None if it is no reproducer."""
    match = _REPRODUCER.search(text)
    if match is None:
        return None
    pipeline = parse_pipeline(re.sub(r"\\(.)", r"\1", match.group(1)))
    return Reproduction(text[: match.start()] + text[match.end() :], pipeline, "verify_each: false" not in match.group(2))


def run_pipeline(
    module: ir.Module,
    pipeline: str | Pipeline | Sequence[Pass | str],
    *,
    verify_each: bool = True,
    before_each: PassCallback | None = None,
    after_each: PassCallback | None = None,
    reproducer: Reproducer | None = None,
    diagnostics: list[Diagnostic] | None = None,
) -> None:
    """Runs passes over `module`, in place.

    `verify_each` verifies after every pass; the callbacks get the step and the module; warnings and remarks of MLIR's passes are
    added to `diagnostics`. Raises KtirError with `pass_name` set as soon as a pass fails. No op or value handle outlives a pass.
    """
    steps = _as_pipeline(pipeline).steps
    managers = [_manager(step, module.context) if isinstance(step.item, MlirPass) else None for step in steps]
    for step, manager in zip(steps, managers, strict=True):
        if step.of is not None and step.of.passes_over(step.item, module):
            continue
        if before_each:
            before_each(step, module)
        if reproducer:
            reproducer.write(module, Pipeline((step,)), verify_each)
        try:
            if manager is None:
                _run_ours(step, module, verify_each)
            else:
                _run_mlir(step, manager, module, verify_each, diagnostics)
        except KtirError as error:
            error.pass_name = error.pass_name or str(step)
            raise
        if after_each:
            after_each(step, module)
    if reproducer:
        reproducer.path.unlink(missing_ok=True)


def _run_ours(step: Step, module: ir.Module, verify_each: bool) -> None:
    try:
        with module.context:
            step.item.run(module)  # type: ignore[union-attr]  # the caller has looked
    except KtirError:
        raise
    except Exception as error:  # whatever a pass raises, the caller learns which pass it was
        import traceback  # for faults alone: it takes its time to load

        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        raise PassError(f"pass '{step}' failed in {where}: {type(error).__name__}: {error}") from error
    if verify_each and not step.item.analysis:  # type: ignore[union-attr]  # as above
        verify(module)


def _run_mlir(
    step: Step, manager: passmanager.PassManager, module: ir.Module, verify_each: bool, diagnostics: list[Diagnostic] | None
) -> None:
    manager.enable_verifier(verify_each)
    with collect(module.context) as found:
        try:
            manager.run(module.operation)
            failed = False
        except ir.MLIRError:
            failed = True
    if failed:
        raise PassError.of(found, f"pass '{step}' failed")
    _place_constants(module)
    if diagnostics is not None:
        diagnostics += found


def _place_constants(module: ir.Module) -> None:
    """Put at their function the constants that MLIR's folder moved to its begin: one that several ops share loses its place."""
    for function in module.body:
        for block in itertools.chain.from_iterable(function.operation.regions):
            for op in itertools.takewhile(lambda op: op.operation.name == _CONSTANT, block):
                if op.location == ir.Location.unknown():
                    op.operation.location = function.location


def _manager(step: Step, context: ir.Context) -> passmanager.PassManager:
    with collect(context) as found:
        try:
            return passmanager.PassManager.parse(f"{MODULE}({step})", context=context)
        except (ValueError, ir.MLIRError) as error:
            text = found[0].message if found else str(error)
    reason = text.partition("\n")[0]
    raise KtirError(f"pass '{step}' cannot run: {re.sub(r'^MLIR Textual PassPipeline Parser:[0-9:]+ error: ', '', reason)}")


_UNKNOWN = "does not refer to a registered pass"


@cache
def is_of_mlir(name: str) -> bool:
    """Whether MLIR has a pass of that name."""
    context = ir.Context()
    with collect(context) as found:
        try:
            passmanager.PassManager.parse(f"any({name})", context=context)
        except (ValueError, ir.MLIRError) as error:
            return _UNKNOWN not in str(error) + "".join(d.message for d in found)
    return True


def check_pipeline(pipeline: Pipeline, context: ir.Context) -> None:
    """Raises KtirError if MLIR does not know one of the passes, or not there, or not with these options."""
    for step in pipeline:
        if isinstance(step.item, MlirPass):
            _manager(step, context)


def nested_as_needed(step: Step, context: ir.Context) -> Step:
    """`step` on the functions of the module if its pass, one of MLIR's, does not run on a module. Raises KtirError if it runs nowhere."""
    if isinstance(step.item, Pass):
        return step
    try:
        _manager(step, context)
    except KtirError:
        on_functions = Step(step.item, ("func.func",))
        try:
            _manager(on_functions, context)
        except KtirError:
            pass
        else:
            return on_functions
        raise
    return step


def steps_of(pipeline: NamedPipeline, text: str | None = None) -> tuple[Step, ...]:
    """The passes that the name of a pipeline stands for, or those of `text`, a part of them."""
    found = parse_pipeline(pipeline.text() if text is None else text)
    return tuple(dataclasses.replace(s, of=s.of or pipeline) for s in found)


def _as_pipeline(pipeline: str | Pipeline | Sequence[Pass | str]) -> Pipeline:
    if isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, str):
        return parse_pipeline(pipeline)
    steps: list[Step] = []
    for item in pipeline:
        steps += parse_pipeline(item).steps if isinstance(item, str) else [Step(item)]
    return Pipeline(tuple(steps))


def parse_pipeline(text: str) -> Pipeline:
    """The pipeline that `text` spells. Raises KtirError at `pipeline:1:column` for faulty text, unknown passes and options, and bad values.

    Options of passes that are not ours are checked by MLIR when the pipeline is run.
    """
    reader = _Reader(text)
    steps = reader.items((), closing=False)
    if len(reader.outer) == 1 and reader.outer[0] == MODULE:
        steps = [dataclasses.replace(s, anchors=s.anchors[1:]) for s in steps]
    for step in steps:
        if isinstance(step.item, Pass) and step.anchors:
            raise KtirError(f"pass '{step.name}' runs on '{MODULE}', but is nested under '{step.anchors[-1]}'")
    return Pipeline(tuple(steps), tuple(reader.named))


class _Reader:
    """Recursive descent over pipeline text."""

    _NAME = re.compile(r"\s*([A-Za-z_][\w\-.]*)\s*")

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.outer: list[str] = []
        """Names at the outermost level; an anchor or a pass."""
        self.named: list[NamedPipeline] = []

    def fail(self, message: str, at: int | None = None) -> KtirError:
        return KtirError(message, f"pipeline:1:{(self.at if at is None else at) + 1}")

    def items(self, anchors: tuple[str, ...], closing: bool) -> list[Step]:
        steps: list[Step] = []
        while not (closing and self._take(")")):
            if not closing and not self.text[self.at :].strip():
                return steps
            start = self.at
            match = self._NAME.match(self.text, self.at)
            if match is None:
                raise self.fail("expected pass name")
            name, self.at = match.group(1), match.end()
            if not anchors:
                self.outer.append(name)
            if self._take("("):
                steps += self.items((*anchors, name), closing=True)
            else:
                options = self._braces()
                ours = registry.pass_class(name) or (None if is_of_mlir(name) else registry.offered("ktir.passes", name))
                if ours is not None:
                    item = self._with_options(ours, options, start)
                    if isinstance(item, NamedPipeline):
                        self.named.append(item)
                        inside = steps_of(item)
                    else:
                        inside = (Step(item),)
                    steps += [dataclasses.replace(s, anchors=(*anchors, *s.anchors)) for s in inside]
                elif not is_of_mlir(name):
                    raise self.fail(f"'{name}' {_UNKNOWN} or pass pipeline{close_to(name, registry.known_passes())}", match.start(1))
                else:
                    steps.append(Step(MlirPass(name + (f"{{{options}}}" if options else "")), anchors))
            if self._take(","):
                continue
            rest = self.text[self.at :].strip()
            if (rest and not closing) or (closing and not rest.startswith(")")):
                raise self.fail("expected ',' or ')'" if closing else "expected ','")
        return steps

    def _take(self, character: str) -> bool:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        found = self.text.startswith(character, self.at)
        self.at += found
        return found

    def _braces(self) -> str:
        """What stands in the braces at the cursor, if any."""
        if not self._take("{"):
            return ""
        start, depth = self.at, 1
        while depth:
            if self.at == len(self.text):
                raise self.fail("expected '}'", start - 1)
            depth += {"{": 1, "}": -1}.get(self.text[self.at], 0)
            self.at += 1
        return self.text[start : self.at - 1].strip()

    def _with_options(self, cls: type[Pass | NamedPipeline], options: str, start: int) -> Pass | NamedPipeline:
        fields = _option_types(cls)
        values: dict[str, Any] = {}
        for match in re.finditer(r"([\w\-]+)(?:=(\{[^}]*\}|\S+))?|(\S)", options):
            key = (match.group(1) or "").replace("-", "_")
            if key not in fields:
                known = [f.replace("_", "-") for f in fields]
                wrong = f"pass '{cls.name}' has no option '{match.group()}'{close_to(match.group(1) or '', known)}"
                raise self.fail(f"{wrong} (options: {', '.join(known) or 'none'})", start)
            if key in values:
                raise self.fail(f"option '{match.group(1)}' of pass '{cls.name}' is given twice", start)
            try:
                values[key] = _option_value(fields[key], match.group(2))
            except ValueError as error:
                raise self.fail(f"option '{match.group(1)}' of pass '{cls.name}': {error}", start) from None
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise self.fail(f"pass '{cls.name}': {error}", start) from None


@cache
def _option_types(cls: type[_Optioned]) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _check_options(item: _Optioned) -> None:
    for name, hint in _option_types(type(item)).items():
        value, option = getattr(item, name), f"option '{name.replace('_', '-')}'"
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(f"{option} expects one of {', '.join(get_args(hint))}, but got '{value}'{close_to(value, get_args(hint))}")
        for limit in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
            if isinstance(limit, AtLeast) and value is not None and not value >= limit.least:
                raise ValueError(f"{option} expects at least {limit.least}, but got {value}")


def _option_value(hint: Any, text: str | None) -> Any:
    """The value of option type `hint` that `text` spells; no text at all means true."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(h for h in get_args(hint) if h is not type(None))
    if hint is bool:
        if text is not None and text.lower() not in ("1", "0", "true", "false"):
            raise ValueError(f"expected true or false, but got '{text}'")
        return text is None or text.lower() in ("1", "true")
    if text is None:
        raise ValueError("expected a value")
    text = text[1:-1].strip() if text.startswith("{") else text
    if get_origin(hint) in (tuple, list):
        element = get_args(hint)[0]
        return get_origin(hint)(_option_value(element, part) for part in re.split(r"[,\s]+", text) if part)
    if hint in (int, float):
        try:
            return int(text, 0) if hint is int else float(text)
        except ValueError:
            raise ValueError(f"expected {'an integer' if hint is int else 'a number'}, but got '{text}'") from None
    return text


def options_of(item: _Optioned) -> dict[str, str]:
    """The options that differ from their defaults, as text, by the name of the field."""
    changed = [f for f in dataclasses.fields(item) if getattr(item, f.name) != _default(f)]
    return {f.name: f"{f.name.replace('_', '-')}={_option_text(getattr(item, f.name))}" for f in changed}


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_option_text, value)) if isinstance(value, tuple | list) else str(value)


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _nested(anchors: tuple[str, ...], inside: str) -> str:
    for anchor in reversed(anchors):
        inside = f"{anchor}({inside})"
    return inside
