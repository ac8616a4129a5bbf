"""First-fit addresses: tensors that live at the same time never share a byte."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ktir.passes.scratchpad.buffer_plan import Buffer
from ktir.passes.scratchpad.first_fit import _ORDERS, _placed, first_fit, fit_twins, live_at_once
from ktir.passes.scratchpad.rotation import Rotation

ANY: Any = None
HARD = [(3, 6, 4), (2, 4, 5), (3, 5, 1), (4, 6, 2), (4, 5, 4)]
"""Begin, end, sticks."""
BUFFERS = st.lists(
    st.builds(
        lambda start, length, sticks, slots: Buffer(ANY, start, start + length, sticks * 128, Rotation(slots)),
        st.integers(0, 20),
        st.integers(1, 10),
        st.integers(1, 40),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None)
@given(BUFFERS, st.booleans())
def test_no_overlap(buffers: list[Buffer], reuse: bool) -> None:
    used = first_fit(buffers, 1 << 30, reuse)
    assert used == max(b.address + b.bytes for b in buffers)
    for i, a in enumerate(buffers):
        assert a.address % 128 == 0
        for b in buffers[:i]:
            alive = not reuse or (a.start < b.end and b.start < a.end)
            apart = a.address + a.bytes <= b.address or b.address + b.bytes <= a.address
            assert apart or not alive


def test_other_orders_are_tried() -> None:
    """Of these no order by begin, size or length needs as little as what lives at once."""
    buffers = [Buffer(ANY, start, end, sticks * 128) for start, end, sticks in HARD]
    assert first_fit(buffers, 1 << 30, reuse=True) == live_at_once(buffers)
    for key in _ORDERS:
        assert _placed(sorted(buffers, key=key), reuse=True) > live_at_once(buffers)


@settings(deadline=None)
@given(BUFFERS)
def test_budget(buffers: list[Buffer]) -> None:
    used = first_fit(buffers, 1 << 30, reuse=True)
    assert first_fit(buffers, used - 1, reuse=True) == -1
    assert used <= first_fit(buffers, 1 << 30, reuse=False)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 10), st.sampled_from(["4xf32", "4xf16", "2xf32"]), st.integers(1, 2)),
        min_size=1,
        max_size=30,
    )
)
def test_twins_share_and_others_do_not(drawn: list[tuple[int, int, str, int]]) -> None:
    """Whoever shares an address has the same type and size, and lives at another time. Both corelets may have one of a type each."""
    sizes = {"4xf32": 512, "4xf16": 256, "2xf32": 256}
    buffers = [Buffer(SimpleNamespace(type=kind), a, a + n, sizes[kind] * each) for a, n, kind, each in drawn]
    used = fit_twins(buffers, 1 << 30)
    assert used == max(b.address + b.bytes for b in buffers)
    for i, a in enumerate(buffers):
        for b in buffers[:i]:
            if a.address < b.address + b.bytes and b.address < a.address + a.bytes:
                assert (a.address, a.bytes, a.kind) == (b.address, b.bytes, b.kind)
                assert a.end <= b.start or b.end <= a.start
    assert fit_twins(buffers, used - 1) == -1
