"""Generated functions of all types: the model that judges them, what they are made of, and a few of them compiled."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from campaign import functions, spread
from campaign.function_avoided import AVOIDED
from campaign.function_call import Call, Number, evaluate
from campaign.function_draws import ALL, Draw, Node, NoFit
from campaign.function_model import Bounded, added, bilinear, exactly, monotone, multiplied, remaining, rounded, wrong
from campaign.function_pointwise import of_numpy, turned
from campaign.function_programs import OPS, Program, drawn, eager_verdict, judge
from campaign.function_reducer import reduced
from campaign.function_run import run
from campaign.function_sums import products, shares

import ktir.lowering.inductor  # noqa: F401  registers the backend

SOME, MANY = 10, 3000


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    return [drawn(seed) for seed in range(150)]


# ------------------------------------------------------------------------------------------------------------------------------ the model


def test_eager_is_within_the_bounds(programs: list[Program]) -> None:
    """And the bounds say something for nearly all elements."""
    verdicts = [eager_verdict(p) for p in programs]
    assert [(p.note, v.wrong) for p, v in zip(programs, verdicts, strict=True) if v.wrong] == []
    assert sum(v.judged for v in verdicts) > 0.95 * sum(v.elements for v in verdicts)


def one(name: str, text: str, value: torch.Tensor) -> Program:
    """A program of one call, as the generator draws it for the operator of this name."""
    r = random.Random(0)
    for _ in range(400):
        d = Draw(r, "normal", value.dtype, (3, 64, 5))
        d.new(value)
        try:
            call = OPS[name](d)
        except NoFit:
            continue
        if call.text == text:
            eager = eval(
                call.text.format("x", *(o.value for o in call.operands[1:])), {"x": value, "torch": torch, "F": torch.nn.functional}
            )
            return Program([Node(value), Node(eager, call)], [1])
    raise AssertionError(text)


def test_a_zero_tail_of_a_softmax_is_wrong() -> None:
    x = torch.linspace(8, -8, 65).half()[None]
    program = one("softmax", "torch.softmax({0}, -1)", x)
    right = torch.softmax(x, -1)
    assert not judge(program, [right], [x]).wrong
    assert judge(program, [torch.where(right < 1e-4, 0, right)], [x]).wrong


def test_places_that_are_off_by_one_are_wrong() -> None:
    x = torch.randn(7, 65, generator=torch.Generator().manual_seed(0)).half()
    program = one("argmax", "torch.argmax({0}, -1, keepdim=False)", x)
    places = x.argmax(-1)
    assert not judge(program, [places], [x]).wrong
    assert judge(program, [(places + 1) % 65], [x]).wrong


def test_a_value_that_is_returned_is_that_of_its_readers() -> None:
    """The square of 1 + 2^-10 is rounded where it is returned, and a reader that subtracts what it is rounded to finds 0."""
    x = torch.full((3,), 1 + 2.0**-10).half()
    square = Call("{0} * {0}", (0,), added)
    rest = Call("{0} - {1}", (1, Number(1 + 2.0**-9)), added)
    program = Program([Node(x), Node(x * x, square), Node(x * 0, rest)], [1, 2])
    assert not judge(program, [x * x, x * 0], [x]).wrong
    assert judge(program, [x * x, x * 0 + 2.0**-20], [x]).wrong, "computed from the value before rounding"
    assert not judge(Program(program.nodes, [2]), [x * 0 + 2.0**-20], [x]).wrong, "one reader may see it unrounded"


def test_what_overflows_within_may_have_stayed_a_number() -> None:
    """Where one reader sees it unrounded; what is returned is rounded."""
    x = torch.tensor([60000.0]).half()
    program = Program(
        [Node(x), Node(x * 2, Call("{0} * {1}", (0, Number(2)), multiplied)), Node(x * 0, Call("1 / {0}", (1,), monotone))], [2]
    )
    assert not judge(program, [torch.tensor([1 / 120000]).half()], [x]).wrong
    assert not judge(program, [torch.tensor([0.0]).half()], [x]).wrong
    assert judge(Program(program.nodes, [1, 2]), [x * 2, torch.tensor([1 / 120000]).half()], [x]).wrong


def test_exact_data_have_exact_results() -> None:
    a, b = (torch.randint(-6, 7, (65, 65), generator=torch.Generator().manual_seed(k)).half() for k in range(2))
    d = Draw(random.Random(0), "exact", torch.float16, (65, 65, 65))
    call = OPS["bmm"](_three(d))
    operands = [exactly(d.nodes[o].eager) for o in call.operands]
    known = dict(zip(call.operands, operands, strict=True))
    eager = eval(call.text.format(*(f"v[{o}]" for o in call.operands)), {"torch": torch, "v": {o: d.nodes[o].eager for o in call.operands}})
    assert not evaluate(call, [known.get(k, operands[0]) for k in range(len(d.nodes))], eager).error.any()
    assert wrong((a @ b) + 1, rounded((a @ b).double(), torch.zeros(65, 65).double(), torch.float16)).all()


def _three(d: Draw) -> Draw:
    d.new(d.values((2, 5, 64), torch.float16))
    return d


def test_overflow_is_an_infinity_or_open() -> None:
    most = torch.tensor([70000.0, 65504.0, 65519.0], dtype=torch.float64)
    result = rounded(most, torch.zeros(3).double(), torch.float16)
    assert wrong(torch.tensor([65504.0, 65504.0, 65504.0]).half(), result).tolist() == [True, False, False]
    assert wrong(torch.tensor([torch.inf, torch.inf, 65504.0]).half(), result).tolist() == [False, True, False]


def _products(a: torch.Tensor, b: torch.Tensor) -> Bounded:
    """What the model says of the product of two matrices."""
    call = Call("{0} @ {1}", (0, 1), bilinear, products(a.shape[1], a.dtype))
    return evaluate(call, [exactly(a), exactly(b)], a @ b)


def test_a_sum_that_some_order_makes_infinite_is_open() -> None:
    """Eager PyTorch adds the first product to nothing, which is too large by itself; the sum of both is not."""
    most = torch.finfo(torch.float32).max
    a, b = torch.tensor([[most, most]]), torch.tensor([[1.02], [-0.5]])
    assert torch.isinf(a @ b).all()
    assert not wrong(a @ b, _products(a, b)).any()
    assert not wrong((a.double() @ b.double()).float(), _products(a, b)).any()


def test_a_mean_is_open_where_its_sum_may_be_infinite() -> None:
    most = torch.finfo(torch.float32).max
    x = torch.tensor([[most, most, 0.0], [most / 4, most / 4, 0.0]])
    program = one("mean", "torch.mean({0}, (1,), keepdim=False)", x)
    assert torch.mean(x, (1,)).isinf().tolist() == [True, False]
    assert not judge(program, [torch.mean(x, (1,))], [x]).wrong
    assert judge(program, [torch.mean(x, (1,)) * 1.001], [x]).wrong


def test_what_is_not_sure_is_not_sure_the_other_way() -> None:
    """Whether x is x is not known of an x that may be NaN."""
    unsure = Bounded(torch.tensor([True, False]), torch.tensor([torch.inf, 0.0], dtype=torch.float64))
    call = one("logical", "~{0}", unsure.value).nodes[1].call
    assert call is not None
    found = evaluate(call, [unsure], ~unsure.value)
    assert found.error.tolist() == [torch.inf, 0]


def test_an_infinite_operand_is_judged() -> None:
    inf = torch.inf
    a, b = torch.tensor([[1.0, inf], [0.0, inf], [1.0, 1.0]]), torch.tensor([[2.5], [-3.0]])
    wanted = _products(a, b)
    assert not wrong(a @ b, wanted).any()
    assert wrong(torch.tensor([[inf], [torch.nan], [0.0]]), wanted).all()


def test_a_sigmoid_is_0_where_its_exponential_overflows() -> None:
    x = torch.tensor([-91.5, -80.0]).bfloat16()
    program = one("sigmoid", "torch.sigmoid({0})", x)
    assert torch.sigmoid(x)[0] == 0
    assert not judge(program, [torch.sigmoid(x)], [x]).wrong
    assert judge(program, [torch.zeros_like(x)], [x]).wrong


def test_a_number_of_another_type_is_converted() -> None:
    """A tensor without dims has no say in the type of a result."""
    x, y = torch.tensor([5.5, 0.5]).bfloat16(), torch.tensor(0.3335).half()
    program = Program([Node(x), Node(y), Node(torch.fmod(x, y), Call("torch.fmod({0}, {1})", (0, 1), remaining(torch.trunc)))], [2])
    assert not judge(program, [torch.fmod(x, y)], [x, y]).wrong
    assert judge(program, [torch.fmod(x, y) * 1.5], [x, y]).wrong


def test_a_remainder_whose_quotient_overflows_has_numpys_value() -> None:
    """Eager's vectors give NaN, eager's numbers one by one what is right."""
    x, y = torch.full((9,), 3.0, dtype=torch.float64), torch.full((9,), 5e-324, dtype=torch.float64)
    assert torch.fmod(x, y)[0].isnan()
    call = Call("torch.fmod({0}, {1})", (0, 1), remaining(torch.trunc), oracle=of_numpy("fmod"))
    program = Program([Node(x), Node(y), Node(torch.fmod(x, y), call)], [2])
    assert not judge(program, [torch.zeros_like(x)], [x, y]).wrong
    assert judge(program, [torch.full_like(x, torch.nan)], [x, y]).wrong


def test_infinities_and_nans_of_exact_operands_are_judged() -> None:
    """NaN of a logarithm, and of a sum in which NaN or opposite infinities stand, whatever the other numbers add up to."""
    most, inf = torch.finfo(torch.float32).max, torch.inf
    x = torch.tensor([[-1.0, most, most], [inf, -inf, most], [inf, most, 2.0], [torch.nan, -most, -most]])
    for name, text in (("log", "torch.log({0})"), ("sum", "torch.sum({0}, (1,), keepdim=False)")):
        program = one(name, text, x)
        right = program.nodes[1].eager
        assert not judge(program, [right], [x]).wrong
        sure = torch.isnan(right)
        assert sure.any()
        assert f" {int(sure.sum())} of " in judge(program, [torch.where(sure, 0.0, right)], [x]).wrong[0]


BOUNDS: dict[str, tuple[Any, Any]] = {
    "fmod": (torch.fmod, lambda x, y: remaining(torch.trunc)(torch.fmod, x, y)),
    "remainder": (torch.remainder, lambda x, y: remaining(torch.floor)(torch.remainder, x, y)),
    "atan2": (torch.atan2, lambda x, y: turned(torch.atan2, x, y)),
    "softmax": (lambda x, y: torch.softmax(x + y, 1), lambda x, y: shares(torch.softmax(x.value + y.value, 1), x.error + y.error, 1)),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_hold_everywhere_in_the_intervals_of_the_operands(name: str) -> None:
    """Numbers of the intervals, their ends among them, against what PyTorch makes of them; and the bounds say something for most."""
    function, rule = BOUNDS[name]
    g = torch.Generator().manual_seed(1)
    x, y = (
        Bounded(5 * torch.randn(40, 64, generator=g).double(), 0.05 * torch.rand(40, 64, generator=g).double().round(decimals=1))
        for _ in range(2)
    )
    value, bound = function(x.value, y.value), rule(x, y)
    assert (bound < 0.5).double().mean() > 0.6
    reached = torch.zeros_like(value)
    for _ in range(300):
        a, b = (o.value + o.error * (2 * torch.rand(40, 64, generator=g).double() - 1).mul(3).clamp(-1, 1) for o in (x, y))
        reached = torch.maximum(reached, (function(a, b) - value).abs())
    assert (reached <= bound * (1 + 1e-12) + 1e-14).all()


def test_a_reciprocal_is_a_number_of_its_type() -> None:
    x = torch.tensor([2.0**-128, 3e38, 4.0])
    program = one("number by", "{1} / {0}", x)
    call = program.nodes[1].call
    assert call is not None
    value = call.operands[1].value
    assert torch.isinf(value / x)[0]
    assert not judge(program, [value / x], [x]).wrong
    assert judge(program, [value / x * torch.tensor([1, 1, 1.001])], [x]).wrong


# -------------------------------------------------------------------------------------------------------------------------- the generator


def test_programs_are_of_every_kind(programs: list[Program]) -> None:
    texts = Counter(n.call.text for p in programs for n in p.nodes if n.call is not None)
    kinds = Counter(n.dtype for p in programs for n in p.nodes)
    assert set(kinds) >= set(ALL)
    for part in ("@", "softmax", "sum(", "amax", "argmax", ".copy_", "{out}[", "cat(", "where", "//", ".to(", "expand", "dtype=", "index_"):
        assert any(part in t for t in texts), part
    assert any(p.mutated for p in programs)
    hidden = [p for p in programs if set(range(len(p.nodes))) - set(p.inputs) - set(p.outputs)]
    assert len(hidden) > 0.3 * len(programs), "intermediates that are no outputs"
    inputs = [p.nodes[k].eager for p in programs for k in p.inputs]
    floats = [x for x in inputs if x.is_floating_point()]
    assert any(torch.isnan(x).any() for x in floats)
    assert any(torch.isinf(x).any() for x in floats)
    assert any(((x == 0) & torch.signbit(x)).any() for x in floats)
    assert any((x.abs() == 65504).any() for x in floats if x.dtype == torch.float16)
    wide = [Draw(random.Random(k), "normal", torch.int64, (1, 2, 3)).values((9,), torch.int64) for k in range(30)]
    assert any((x.abs() > 2**40).any() for x in wide)
    assert any((n % 64 == 0) for x in inputs for n in x.shape)
    assert max(n for x in inputs for n in x.shape) == 600


@pytest.mark.parametrize("name", OPS)
def test_every_operator_has_programs(name: str) -> None:
    """On some of the usual inputs the operator is drawn, and eager PyTorch is within its bound."""
    made = 0
    for seed in range(60):
        program = drawn(seed)
        d = Draw(
            random.Random(seed),
            "normal",
            torch.float16,
            (5, 64, 7),
            [Node(program.nodes[k].eager, None, frozenset({k})) for k in program.inputs],
        )
        d.new(d.nodes[0].eager > 0)
        try:
            call = OPS[name](d)
            function = Program([*d.nodes, Node(torch.empty(0), call)], [len(d.nodes)])
            (eager,) = function.function()(*(n.eager.clone() for n in d.nodes))
        except (NoFit, RuntimeError, IndexError, ValueError, TypeError):
            continue
        function.nodes[-1] = Node(eager, call)
        assert eager_verdict(function).wrong == []
        made += 1
        if made == 2:
            return
    raise AssertionError(f"{name} is never drawn")


def test_a_seed_is_a_program(programs: list[Program]) -> None:
    again = drawn(17)
    assert again.function_text() == programs[17].function_text()
    assert all(torch.equal(a, b) or a.is_floating_point() for a, b in zip(again.arguments(), programs[17].arguments(), strict=True))


@pytest.mark.parametrize("what", AVOIDED)
def test_what_is_avoided(programs: list[Program], what: str) -> None:
    """No program does it, and the check would see it."""
    avoided = AVOIDED[what]
    assert avoided.seen(*avoided.example())
    calls = [(p, n) for p in programs for n in p.nodes if n.call is not None]
    found = [avoided.seen(n.call.text, operands(p, n), n.eager) for p, n in calls if n.call is not None]
    assert not any(found), [p.note for (p, _), f in zip(calls, found, strict=True) if f]


def operands(program: Program, node: Node) -> list[torch.Tensor]:
    assert node.call is not None
    return [torch.tensor(o.value) if isinstance(o, Number) else program.nodes[o].eager for o in node.call.operands]


# ---------------------------------------------------------------------------------------------------------------------- reducing, running


def test_a_failing_program_becomes_small() -> None:
    seed = next(s for s in range(200) if "softmax" in (text := drawn(s).function_text()) and text.count("\n") > 7)
    small = reduced(drawn(seed), fails=lambda p: "wrong" if "softmax" in p.function_text() else "right")
    assert sum(n.call is not None for n in small.nodes) == 1


@pytest.mark.parametrize("seed", range(SOME))
def test_function(seed: int) -> None:
    found = run(drawn(seed))
    assert found["outcome"] == "right", found["what"]
    assert any(found["launches"].values())


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(SystemExit, match=r"--dask needs the package 'distributed': pip install -e '.\[dask\]'"),
        spread.executor(1, "tcp://x"),
    ):
        pass


def test_a_cluster_takes_the_place_of_processes(tmp_path: Path) -> None:
    """Requests go to the workers of a Dask cluster; a request that ends its process costs itself alone; a second run has nothing to do."""
    from distributed import LocalCluster

    script = tmp_path / "square.py"
    script.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    k = json.loads(line)['seed']\n"
        "    if k == 3: os._exit(7)\n"
        "    print(json.dumps({'seed': k, 'square': k * k}), flush=True)\n"
    )
    found: list[dict[str, object]] = []
    requests = [{"seed": k} for k in range(6)]
    options: Any = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options) as made:
        cluster: Any = made
        spread.spread(script, requests, tmp_path / "r.jsonl", found.append, jobs=1, timeout=60, dask=cluster.scheduler_address)
    assert sorted(int(str(r["seed"])) for r in found) == list(range(6))
    assert {"seed": 3, "crash": "the process ended with status 7"} in found
    assert {r["seed"]: r.get("square") for r in spread.read(tmp_path / "r.jsonl", lambda r: r["seed"]).values()} == {
        k: None if k == 3 else k * k for k in range(6)
    }


@pytest.mark.long
def test_thousands(tmp_path: Path) -> None:
    """None is wrong, none crashes; at least 80 % of the float16 programs run wholly on the chip."""
    path = tmp_path / "functions.jsonl"
    assert functions.main(["--programs", str(MANY), "--results", str(path)]) == 0
    half = [r["launches"] for r in map(json.loads, path.read_text().splitlines()) if r["half"] and any(r["launches"].values())]
    assert sum(n["chip"] > 0 and n["executor"] == n["torch"] == 0 for n in half) >= 0.8 * len(half)
