"""What is only moved keeps its bits: every code of a format, those of signalling NaN too, also as the bits of integers that are computed.

Several functions are compiled as one model, so that the tests are quick.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ktir import config
from ktir.runtime import metrics

INTEGERS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.int8,
    torch.float8_e5m2: torch.int8,
}
FORMATS = list(INTEGERS)
Results = tuple[torch.Tensor, ...]


def codes(real: torch.dtype) -> torch.Tensor:
    """All of them, as integers, and some again."""
    whole = INTEGERS[real]
    least = torch.iinfo(whole).min
    return torch.arange(least, -least).to(whole)


def moves(x: torch.Tensor) -> Results:
    """The same elements elsewhere."""
    rows = x.view(16, -1)
    at = torch.tensor([3, 15, 0, 3], device=x.device)
    return (
        rows.t().contiguous(),
        torch.cat([x[3:], x]),
        rows[:, 3:9].clone(),
        rows[at],
        x.roll(5),
        torch.nn.functional.pad(x, (3, 5)),
        torch.where(torch.arange(len(x), device=x.device) % 3 == 0, x, x.roll(1)),
        rows[3:4].expand(5, -1).contiguous(),
    )


def same(f: Callable[..., Results], *arguments: torch.Tensor) -> metrics.Launches:
    """Bits of results and of what is written in place. What ran is told."""
    given, expected = ([a.clone() for a in arguments] for _ in range(2))
    torch._dynamo.reset()
    with metrics.counted() as launches, torch.no_grad():
        got, want = torch.compile(f, backend="spyre", dynamic=False)(*given), f(*expected)
    for a, b in zip((*got, *given), (*want, *expected), strict=True):
        assert a.dtype == b.dtype
        whole = INTEGERS.get(a.dtype, a.dtype)
        assert torch.equal(a.contiguous().view(whole), b.contiguous().view(whole))
    return launches()


def check(f: Callable[..., Results], *arguments: torch.Tensor) -> None:
    ran = same(f, *arguments)
    assert ran == metrics.Launches(chip=ran.chip)
    assert ran.chip


@pytest.mark.parametrize("real", FORMATS)
def test_of_floats(real: torch.dtype) -> None:
    check(moves, codes(real).view(real))


@pytest.mark.parametrize("real", FORMATS)
def test_of_computed_integers(real: torch.dtype) -> None:
    """Views of them as floats, moved, and as integers again."""
    whole = INTEGERS[real]

    def f(x: torch.Tensor) -> Results:
        moved = moves((x ^ 1).view(real))
        return (*moved, *(y.view(whole) ^ 3 for y in moved[:3]), (x + 5).view(real).view(whole) * 2)

    check(f, codes(real))


@pytest.mark.parametrize("real", FORMATS)
def test_of_what_is_written_in_part(real: torch.dtype) -> None:
    """Elements of a view of integers that nobody writes."""

    def f(x: torch.Tensor, row: torch.Tensor) -> Results:
        view = x.view(real)
        view[3:7] = row.to(real)
        return (x, view)

    check(f, codes(real), torch.tensor([1.5, -2.0, 0.0, 96.0]))


@pytest.mark.parametrize("real", FORMATS)
@pytest.mark.parametrize("engine", ["spyre", "ktir"])
def test_of_a_single_number(real: torch.dtype, engine: str) -> None:
    """A signalling NaN, where the format has one."""
    code = {torch.float16: 0x7C01, torch.bfloat16: 0x7F81, torch.float8_e5m2: 0x7D, torch.float8_e4m3fn: 0x7F}[real]
    with config.patch(engine=engine):
        same(lambda x: ((x ^ 1).view(real), (x ^ 1).view(real).expand(3).clone()), torch.tensor(code ^ 1, dtype=INTEGERS[real]))


@pytest.mark.parametrize("real", FORMATS)
def test_of_floats_as_integers(real: torch.dtype) -> None:
    whole = INTEGERS[real]
    check(lambda x: (x.view(whole) + 0, x.view(16, -1).t().contiguous().view(whole) ^ 3), codes(real).view(real))


@pytest.mark.parametrize("real", FORMATS)
def test_on_the_device(real: torch.dtype) -> None:
    """Eager and compiled, from and to the host."""
    whole, given = INTEGERS[real], codes(real)

    def f(x: torch.Tensor) -> Results:
        return (*moves((x ^ 1).view(real))[:3], x.view(real).view(16, -1).t().contiguous().view(whole))

    want = f(given)
    for run in (f, torch.compile(f, backend="spyre", dynamic=False)):
        torch._dynamo.reset()
        for a, b in zip(run(given.to("spyre")), want, strict=True):
            assert torch.equal(a.cpu().view(whole), b.view(whole))


@pytest.mark.parametrize("real", FORMATS)
def test_where_the_device_has_another_float(real: torch.dtype, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """DLFloat16 has all codes of e4m3, not those of others: views of integers, and moves of e5m2, are the executor's, with a warning."""
    target = tmp_path / "native.toml"
    target.write_text('name = "native"\ndl16 = "native"\n')
    whole, has_all = INTEGERS[real], real == torch.float8_e4m3fn
    with config.patch(target=str(target)):
        ran = same(lambda x: tuple(y.view(whole) ^ 3 for y in moves((x ^ 1).view(real))[:2]), codes(real))
        assert (bool(ran.chip), bool(ran.executor)) == (has_all, not has_all)
        assert ("which target 'native' holds as DLFloat16" in caplog.text) is not has_all
        if real.itemsize == 1:
            ran = same(moves, codes(real).view(real))
            assert (bool(ran.chip), bool(ran.executor)) == (has_all, not has_all)
            assert ("the nearest supported float of one byte is f8E4M3FN" in caplog.text) is not has_all


@pytest.mark.parametrize("real", FORMATS)
def test_of_what_is_written_by_index(real: torch.dtype) -> None:
    """To views of another type: of integers as floats, and of floats as integers, as caches of keys and values are."""
    whole = INTEGERS[real]

    def floats(x: torch.Tensor, at: torch.Tensor, row: torch.Tensor) -> Results:
        view = x.view(real)
        view[at] = row.to(real)
        return (x + 1, view)

    def integers(x: torch.Tensor, at: torch.Tensor, row: torch.Tensor) -> Results:
        view = x.view(whole)
        view[at] = row.to(real).view(whole)
        return (x, view + 1)

    at, row = torch.tensor([100, 3, 7, 31]), torch.tensor([1.5, -2.0, 0.0, 96.0])
    check(floats, codes(real), at, row)
    check(integers, codes(real).view(real), at, row)


@pytest.mark.filterwarnings("ignore")
def test_of_what_is_added_by_index() -> None:
    """As integers, not as the numbers of the memory."""

    def f(x: torch.Tensor, at: torch.Tensor, by: torch.Tensor) -> Results:
        view = x.view(torch.int32)
        view.index_put_((at,), by, accumulate=True)
        return (view + 1,)

    x = torch.arange(64, dtype=torch.float32)
    given, expected = x.clone(), x.clone()
    at, by = torch.tensor([3, 5, 3]), torch.tensor([1, -7, 100], dtype=torch.int32)
    torch._dynamo.reset()
    (got,) = torch.compile(f, backend="spyre", dynamic=False)(given, at, by)
    (want,) = f(expected, at, by)
    assert torch.equal(got, want)
    assert torch.equal(given.view(torch.int32), expected.view(torch.int32))
