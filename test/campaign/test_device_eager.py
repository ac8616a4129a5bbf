"""A few random programs of eager operators on the device, and that the comparison sees what is wrong."""

from __future__ import annotations

import pytest
from campaign import device_eager
from campaign.device_statements import Line

from ktir.device.autoload import register

register()


def test_programs_are_the_same_on_the_device() -> None:
    for seed in range(8):
        said = device_eager.finding(seed)
        assert not said, f"seed {seed}: {said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v1 = x0 + (1 if x0.device.type == 'cpu' else 2)", "v1[0]"),
        ("v1 = x0.float().exp() * (1 if x0.device.type == 'cpu' else 1.001)", "v1[0]"),
        ("v1 = x0.float() * (0.0 if x0.device.type == 'cpu' else -0.0)", "v1[0]"),
        ("v1 = x0.to(torch.int64 if x0.device.type == 'cpu' else torch.int32)", "int32"),
        ("x0[1:] = x0[1:] if x0.device.type == 'cpu' else 500", "x0[1]"),
        ("v1 = x0.sum() if x0.device.type == 'cpu' else x0.gather(3, x0)", "the device raises"),
        ("v1 = x0[9] if x0.device.type == 'cpu' else x0", "the host raises IndexError"),
    ],
)
def test_what_differs_is_seen(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Line("x0 = content(1, torch.int64, (5,), False)"), Line(text, "float" if "float" in text else "exact", 8)]
    monkeypatch.setattr(device_eager, "drawn", lambda *_: lines)
    assert said in device_eager.finding(0)


def test_what_is_drawn_is_of_all_kinds() -> None:
    text = "\n".join(line.text for seed in range(400) for line in device_eager.drawn(seed))
    for part in ("out=", "_(", "] = ", "searchsorted", "int8", "float16", "True)", "inf", "@"):
        assert part in text
