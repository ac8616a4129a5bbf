"""`ktir-verify-level` finds what passes can do wrong: each defect is put into a pass, or into its result, and the next check names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from combinations import each_once

from ktir import config, registry
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.dialects.module_level import KTIR_LEVELS, MADE_BY
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import STAGES, ToAllocated
from ktir.passes.layouts import physical_ops
from ktir.passes.levels.ktir_verify_level import OPS, RULES
from ktir.passes.scratchpad.buffer_plan import BufferPlan
from ktir.pipeline import Pass, parse_pipeline, run_pipeline

FOLDER = Path(__file__).parents[3] / "lit" / "lowering" / "inductor"


def lowered(name: str, pipeline: str, edit: Callable[[str], str] = lambda text: text) -> str:
    """The text that a pipeline makes of an edited program."""
    with context(), ir.Location.unknown():
        module = parse_module(edit((FOLDER / f"{name}.mlir").read_text()), f"{name}.mlir")
        run_pipeline(module, pipeline)
        return print_module(module)


def test_every_stage_is_checked() -> None:
    names = [step.name for step in parse_pipeline("ktir-to-allocated")]
    assert [names.pop(0) for _ in range(3)] == ["ktir-lift", "ktir-pin", "ktir-state-level"]
    assert names[::2] == ["ktir-verify-level"] * (len(STAGES) + 1)
    assert names[1::2] == [stage.name for stage in STAGES]
    assert [stage.level for stage in STAGES] == sorted((stage.level for stage in STAGES), key=KTIR_LEVELS.index)
    assert set(RULES) == set(OPS) == set(KTIR_LEVELS)


def test_options_reach_all_passes_that_have_them() -> None:
    text = ToAllocated(cores=4, lx_bytes=65536, work_div="m=2,n=2", verify=False).text()
    for name in ("ktir-form-kernels{cores=4 lx-bytes=65536 work-div=m=2,n=2}", "ktir-divide-work{cores=4 lx-bytes=65536 work-div=m=2,n=2}"):
        assert name in text
    assert str(parse_pipeline(str(parse_pipeline(text)))) == str(parse_pipeline(text))


def test_every_pass_says_what_it_expects_and_guarantees() -> None:
    for name, cls in registry.pass_classes().items():
        said = cls.__doc__ or ""
        assert "Expects" in said, name
        assert "uarantees" in said, name


@pytest.mark.parametrize(("name", "reuse"), each_once(sorted(path.stem for path in FOLDER.glob("*.mlir")), ["false", "true"]))
def test_captured_programs(name: str, reuse: str) -> None:
    """All levels hold on few cores too, and where addresses are reused."""
    assert 'ktir.level = "allocated"' in lowered(name, f"ktir-to-allocated{{cores=3 reuse={reuse}}}")


def test_compiled_with_verification() -> None:
    """`config.verify_each` checks levels, and the stages that are shown stay the same."""
    seen: list[str] = []
    with config.patch(verify_each=True), context(), ir.Location.unknown():
        compile_logical(parse_module((FOLDER / "softmax.mlir").read_text()), observe=lambda name, _: seen.append(name))
    assert seen == ["logical", *(stage.name for stage in STAGES)]


def test_missing_masks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(physical_ops, "masked", lambda value, *_: value)
    with pytest.raises(KtirError, match="to be masked with the identity of 'max'") as caught:
        lowered("softmax", "ktir-to-allocated")
    assert re.fullmatch(r"softmax\.mlir:\d+:\d+", caught.value.location or "")
    with pytest.raises(KtirError, match="lanes of its first operand beyond its columns to be zero"):
        lowered("attention", "ktir-to-allocated", lambda text: text.replace("0xFF800000", "0.0").replace("maximumf", "addf"))


def test_short_lifetimes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocator that forgets what a buffer is read for lays others over it."""
    monkeypatch.setattr(BufferPlan, "_extend", lambda *_: None)
    with pytest.raises(KtirError, match="has been overwritten meanwhile"):
        lowered("residual", "ktir-to-allocated{reuse=true}")


def test_too_much_scratchpad_is_found() -> None:
    text = lowered("residual", "ktir-to-allocated")
    with context(), ir.Location.unknown(), pytest.raises(KtirError, match=r"uses \d+ bytes of the scratchpad, but there are 4096"):
        run_pipeline(parse_module(text), "ktir-verify-level{level=allocated lx-bytes=4096}")


@pytest.mark.parametrize("level", KTIR_LEVELS)
def test_a_level_is_itself_only(level: str) -> None:
    """The text of another level is refused where it only says that it is this one."""
    texts = {stage.level: lowered("positions", f"{ToAllocated().text().partition(f',{stage.name}')[0]},{stage.name}") for stage in STAGES}
    for other, text in texts.items():
        claimed = text.replace(f'ktir.level = "{other}"', f'ktir.level = "{level}"')
        with context(), ir.Location.unknown():
            module = parse_module(claimed)
            if other == level:
                run_pipeline(module, f"ktir-verify-level{{level={level}}}")
                assert print_module(module) == claimed
            else:
                with pytest.raises(KtirError, match=r"expects|is no part of|has '"):
                    run_pipeline(module, "ktir-verify-level")


def test_unknown_level() -> None:
    with pytest.raises(KtirError, match=r"unknown level 'final' \(levels: logical, flat, laid-out, divided, tiled, allocated\)"):
        parse_pipeline("ktir-verify-level{level=final}")


def test_analyses_leave_the_module_alone() -> None:
    analyses = [cls for cls in registry.pass_classes().values() if issubclass(cls, Pass) and cls.analysis]
    assert {cls.name for cls in analyses} == {"ktir-check-legality", "ktir-verify-level"}


def test_each_level_names_the_pass_that_leads_there() -> None:
    """The list of stages says the same."""
    first = {stage.level: stage.name for stage in reversed(STAGES)}
    assert {level: name for level, name in MADE_BY.items() if level != "spyre"} == {k: v for k, v in first.items() if k != "logical"}
