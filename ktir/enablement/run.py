"""Each operator and module of a model on the device, held against the host."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

from ktir.checking.suites import models
from ktir.enablement.outcomes import Status, Suite, Variant
from ktir.enablement.record import Module, Recorded, operation_of, to_yaml
from ktir.runtime import metrics

STOPPED = 124
"""Exit code of a model that took too long, as of timeout(1)."""
Note = Callable[[Variant], None]
_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float8_e4m3fn: 0.1, torch.float8_e5m2: 0.2}
"""Of modules, by the least exact type that is used: absolute and relative. Some units in the last place of a sum of a few hundred."""
_OTHERWISE = 1e-4
_LONGEST = 200
"""Characters of a reason."""


def run_recorded(name: str, found: Recorded, backend: str, note: Note) -> None:
    """Run what was recorded of a model; each variant is handed to `note` as it is known."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model.yaml"
        place.write_text(to_yaml(name, found), encoding="utf-8")
        calls = list(found.calls[key] for key in found.operators)
        run_cases(models.load(str(place)), backend, note, calls)
    for number, module in enumerate(found.modules.values(), 1):
        note(_of_module(module, number, backend))


def run_cases(cases: Sequence[models.Case], backend: str, note: Note, calls: Sequence[int] = ()) -> None:
    """The same for cases of a file of RFC 0186; `calls` says how often a model makes each."""
    for number, case in enumerate(cases):
        args, attrs = case.make(), case.attrs
        outcome = _status(lambda case=case: case.run(backend))
        v = _described(operation_of(case.op), "operator", case.name, args, attrs, outcome)
        note(replace(v, target_shape=_result(case.function, args, attrs), calls=calls[number] if calls else 1))


def _of_module(module: Module, number: int, backend: str) -> Variant:
    def compared() -> str:
        with models.falling_back() as left:
            models.compare_with_cpu(module.module, *module.args, atol=bound, rtol=bound, backend=backend, **module.kwargs)
        return left[0] if left else ""

    used = [x.dtype for x in (*_tensors((module.args, module.kwargs)), *module.module.parameters())]
    bound = max([_TOLERANCES.get(dtype, _OTHERWISE) for dtype in used], default=_OTHERWISE)
    v = _described(module.kind, "module", str(number), module.args, module.kwargs, _status(compared))
    return replace(v, target_shape=_result(module.module, module.args, module.kwargs))


def _status(run: Callable[[], str]) -> tuple[Status, str, str]:
    """The status, why, and where programs ran."""
    with metrics.counted() as launches:
        try:
            left = run()
        except Exception as error:  # of the operator, on the host or the device, or other values
            return Status.XFAIL, " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST], _where(launches())
    if left or launches().torch:
        return Status.FALLBACK, (left or "PyTorch computes an operator of its graph")[:_LONGEST], _where(launches())
    return Status.XPASS, "", _where(launches())


def _where(launches: metrics.Launches) -> str:
    names = {"chip": launches.chip, "executor": launches.executor, "PyTorch": launches.torch}
    return " ".join(name for name, count in names.items() if count)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _result(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Shapes of results on the host; none where it fails."""
    try:
        with torch.no_grad():
            return [list(x.shape) for x in _tensors(function(*args, **kwargs))]
    except Exception:  # the variant tells why
        return []


def _described(
    operation: str,
    classification: str,
    case: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outcome: tuple[Status, str, str],
) -> Variant:
    tensors = _tensors((args, kwargs))
    dtypes = [str(x.dtype).removeprefix("torch.") for x in tensors]
    others = [repr(a) for a in args if not _tensors(a)] + [f"{n}={v!r}" for n, v in kwargs.items() if not _tensors(v)]
    spelled, (status, reason, where) = operation.replace(".", "_"), outcome
    return Variant(
        operation=operation,
        classification=classification,
        test_name=f"test_model_{'ops' if classification == 'operator' else 'modules'}_db_{spelled}__{case}_spyre_{(dtypes or ['none'])[0]}",
        status=status,
        input_shapes=[list(x.shape) for x in tensors],
        input_strides=[list(x.stride()) for x in tensors],
        input_dtypes=dtypes,
        arg_values=others,
        reason=reason,
        where=where,
    )


def run_apart(commands: Mapping[str, Sequence[str]], jobs: int, timeout: float | None, said: Callable[[str], None]) -> list[Suite]:
    """Run each model's command in a process of its own, `jobs` at once: what it prints are lines of `line_of` and of `end_of`.

    What a process has found before it dies, or is stopped after `timeout` seconds, counts; its suite has the exit code.
    """

    def one(item: tuple[str, Sequence[str]]) -> Suite:
        suite = _collected(*item, timeout)
        said(f"{suite.name}: " + (", ".join(f"{n} {what}" for what, n in suite.counts().items()) or "nothing ran"))
        return suite

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, commands.items()))


def _collected(name: str, command: Sequence[str], timeout: float | None) -> Suite:
    suite, begin = Suite(name), time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        try:
            suite.exit_code = subprocess.run(command, stdout=out, stderr=errors, timeout=timeout, check=False).returncode
        except subprocess.TimeoutExpired:
            suite.exit_code = STOPPED
        for file in (out, errors):
            file.seek(0)
        for line in out:
            _take(suite, line)
        if suite.exit_code:
            suite.ended = f"stopped after {timeout:.0f} s" if suite.exit_code == STOPPED else "".join(errors.readlines()[-1:]).strip()
    suite.seconds = round(time.monotonic() - begin, 2)
    return suite


def _take(suite: Suite, line: str) -> None:
    try:
        data = json.loads(line)
    except ValueError:  # what the model printed
        return
    if isinstance(data, dict) and "variant" in data:
        suite.variants.append(Variant.of(data["variant"]))
    elif isinstance(data, dict) and "left" in data:
        suite.left |= data["left"]


def line_of(variant: Variant) -> str:
    """A variant as a line of text."""
    return json.dumps({"variant": asdict(variant)})


def end_of(found: Recorded) -> str:
    """What was not written down, as a line of text."""
    return json.dumps({"left": dict(found.left)})
