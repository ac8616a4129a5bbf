"""Pipeline text, pass options and the runner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from ktir import registry
from ktir.assembly import parse_module, print_module
from ktir.diagnostics import KtirError, PassError, Unsupported, remarks, statistics
from ktir.mlir import ir, operations
from ktir.pipeline import MlirPass, Pass, Pipeline, Reproducer, Step, check_pipeline, parse_pipeline, read_reproducer, run_pipeline

TEXT = "func.func @f(%a: index) -> index {\n  %0 = arith.addi %a, %a : index\n  %1 = arith.addi %a, %a : index\n  return %1 : index\n}"


@dataclass(frozen=True)
class Probe(Pass):
    """A pass with every kind of option; does what `do` says."""

    name: ClassVar[str] = "test-probe"
    description: ClassVar[str] = "for these tests"
    do: str = "nothing"
    size: int = 4
    sizes: tuple[int, ...] = ()
    scale: float = 1.0
    fast_mode: bool = False
    limit: int | None = None

    def run(self, module: ir.Module) -> None:
        function = module.body.operations[0]
        if self.do == "tag":
            function.attributes["tagged"] = ir.UnitAttr.get()
        elif self.do == "refuse":
            raise Unsupported("'func.func' op is not to its liking", function.location)
        elif self.do == "crash":
            raise IndexError("out of ideas")
        elif self.do == "break":
            function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], []))
        elif self.do == "remark":
            self.remark("passed", f"size {self.size} chosen", function.location)
        elif self.do == "count":
            self.count("things", self.size)


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    real = registry.pass_class
    monkeypatch.setattr(registry, "pass_class", lambda name: Probe if name == "test-probe" else real(name))


@pytest.mark.parametrize(
    "text",
    [
        "builtin.module()",
        "builtin.module(cse)",
        "builtin.module(cse,canonicalize{top-down=false max-iterations=2},func.func(cse,canonicalize))",
        "builtin.module(test-probe{do=tag size=8 sizes=1,2,3 scale=0.5 fast-mode=true limit=7},cse)",
        "builtin.module(test-probe,ktir-tile{rows=16})",
        "builtin.module(func.func(scf.for(cse)),any(cse))",
    ],
)
def test_text_there_and_back(text: str) -> None:
    pipeline = parse_pipeline(text)
    assert str(pipeline) == text
    assert parse_pipeline(str(pipeline)) == pipeline
    assert parse_pipeline(text.removeprefix("builtin.module(").removesuffix(")")) == pipeline


def test_options() -> None:
    (step,) = parse_pipeline(" test-probe{ fast-mode  sizes={4, 5} limit=0x10 } ")
    assert step.item == Probe(fast_mode=True, sizes=(4, 5), limit=16)
    (step,) = parse_pipeline("test-probe{fast_mode=0}")
    assert str(step) == "test-probe"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cse,", None),
        ("cse canonicalize", "pipeline:1:5: error: expected ','"),
        ("builtin.module(cse", "pipeline:1:19: error: expected ',' or ')'"),
        ("builtin.module(cse))", "pipeline:1:20: error: expected ','"),
        ("cse,4", "pipeline:1:5: error: expected pass name"),
        ("cse{a", "pipeline:1:4: error: expected '}'"),
        ("test-probe{size=1 size=1}", "pipeline:1:1: error: option 'size' of pass 'test-probe' is given twice"),
        ("test-probe{colour=1}", "pipeline:1:1: error: pass 'test-probe' has no option 'colour=1' (options: do, size, "),
        ("cse,test-probe{size=x}", "pipeline:1:5: error: option 'size' of pass 'test-probe': expected an integer, but got 'x'"),
        ("test-probe{size}", "pipeline:1:1: error: option 'size' of pass 'test-probe': expected a value"),
        ("test-probe{scale=x}", "expected a number, but got 'x'"),
        ("test-probe{fast-mode=x}", "expected true or false, but got 'x'"),
        ("ktir-to-allocated{online-softmax=maybe}", "option 'online-softmax' expects one of auto, always, never, but got 'maybe'"),
        ("cse,ktir-to-allocated{way=lfit}", "option 'way' expects one of auto, lift, pin, but got 'lfit'; did you mean 'lift'?"),
        ("ktir-to-allocated{rows=-1}", "pipeline:1:1: error: pass 'ktir-to-allocated': option 'rows' expects at least 0, but got -1"),
        ("ktir-to-allocated{within=nan}", "option 'within' expects at least 0, but got nan"),
        ("func.func(test-probe)", "pass 'test-probe' runs on 'builtin.module', but is nested under 'func.func'"),
    ],
)
def test_faulty_text(text: str, message: str | None) -> None:
    if message is None:
        assert len(parse_pipeline(text).steps) == 1
        return
    with pytest.raises(KtirError) as caught:
        parse_pipeline(text)
    assert message in str(caught.value)


@pytest.mark.usefixtures("mlir")
class TestRunning:
    def module(self) -> ir.Module:
        return parse_module(TEXT, "f.mlir")

    def test_passes_of_both_kinds_in_order(self) -> None:
        module, seen = self.module(), []
        run_pipeline(module, "test-probe{do=tag},func.func(cse)", after_each=lambda step, m: seen.append((str(step), print_module(m))))
        assert [name for name, _ in seen] == ["test-probe{do=tag}", "func.func(cse)"]
        assert [text.count("arith.addi") for _, text in seen] == [2, 1]
        assert "tagged" in seen[0][1]

    def test_pass_objects(self) -> None:
        module = self.module()
        run_pipeline(module, [Probe(do="tag"), "cse"])
        run_pipeline(module, Pipeline((Step(MlirPass("symbol-dce")),)))
        assert "tagged" in print_module(module)

    def test_nothing_runs_if_a_pass_is_unknown(self) -> None:
        module = self.module()
        with pytest.raises(KtirError, match="'no-such-pass' does not refer to a registered pass"):
            run_pipeline(module, "test-probe{do=tag},no-such-pass")
        assert "tagged" not in print_module(module)

    def test_errors_name_the_pass_and_keep_their_place(self) -> None:
        with pytest.raises(Unsupported) as caught:
            run_pipeline(self.module(), "cse,test-probe{do=refuse}")
        assert caught.value.pass_name == "test-probe{do=refuse}"
        assert str(caught.value) == "f.mlir:1:1: error: 'func.func' op is not to its liking\nnote: in pass 'test-probe{do=refuse}'"

    def test_a_crash_of_a_pass_is_an_error_too(self) -> None:
        with pytest.raises(PassError, match=r"do=crash\}' failed in test_pipeline.py:\d+: IndexError: out of ideas") as caught:
            run_pipeline(self.module(), [Probe(do="crash")])
        assert isinstance(caught.value.__cause__, IndexError)

    def test_verification_after_each_pass(self) -> None:
        with pytest.raises(KtirError, match="entry block must have 0 arguments") as caught:
            run_pipeline(self.module(), "test-probe{do=break}")
        assert caught.value.pass_name == "test-probe{do=break}"
        run_pipeline(self.module(), "test-probe{do=break}", verify_each=False)

    def test_failures_of_mlir_passes(self) -> None:
        module = parse_module(
            "func.func @f(%t: !ktdp.access_tile<4xindex>) { %0 = ktdp.load %t : <4xindex> -> tensor<4xf16> return }", "f.mlir"
        )
        with pytest.raises(PassError) as caught:
            run_pipeline(module, "one-shot-bufferize{bufferize-function-boundaries=true}")
        assert caught.value.location == "f.mlir:1:53"

    def test_remarks(self) -> None:
        with remarks() as said:
            run_pipeline(self.module(), "test-probe{do=remark}")
        assert [str(r) for r in said] == ["f.mlir:1:1: remark: [test-probe] size 4 chosen"]

    def test_constants_that_ops_share_have_a_place(self) -> None:
        twice = "%{0} = arith.addi %c, %c : index %{0}a = arith.addi %a, %{0} : index "
        text = f"func.func @f(%a: index) -> (index, index) {{ %c = arith.constant 1 : index {twice.format('x')} {twice.format('y')}"
        text += "return %xa, %ya : index, index }"
        module = parse_module(text, "f.mlir")
        run_pipeline(module, "canonicalize")
        places = {op.operation.name: str(op.location) for op in operations(module)}
        assert places["arith.constant"] == 'loc("f.mlir":1:1)'

    def test_reproducer(self, tmp_path: Path) -> None:
        path = tmp_path / "r.mlir"
        reproducer = Reproducer(path, print_module)
        run_pipeline(self.module(), "cse", reproducer=reproducer)
        assert not path.exists()
        with pytest.raises(Unsupported):
            run_pipeline(self.module(), "cse,test-probe{do=refuse}", reproducer=reproducer, verify_each=False)
        asked = read_reproducer(path.read_text())
        assert asked is not None
        assert (str(asked.pipeline), asked.verify_each) == ("builtin.module(test-probe{do=refuse})", False)
        assert sum(op.name == "arith.addi" for op in operations(parse_module(asked.text))) == 1
        assert read_reproducer("module {}") is None

    def test_a_pipeline_is_checked_without_running(self) -> None:
        context = ir.Context.current
        check_pipeline(parse_pipeline("test-probe{do=crash},func.func(cse)"), context)
        with pytest.raises(KtirError, match="'no-such-pass' does not refer to a registered pass"):
            check_pipeline(parse_pipeline("cse,no-such-pass"), context)

    def test_statistics(self) -> None:
        with statistics() as counted:
            run_pipeline(self.module(), "test-probe{do=count size=3},test-probe{do=count}")
        assert counted == {"test-probe": {"things": 7}}
        run_pipeline(self.module(), "test-probe{do=count}")
        assert counted == {"test-probe": {"things": 7}}

    def test_an_error_without_a_position_has_no_location(self) -> None:
        assert KtirError("no idea", ir.Location.unknown()).location is None
        assert str(KtirError("no idea", ir.Location.unknown())) == "error: no idea"
