"""A few random trainings on the device, and that the comparison sees what is wrong."""

from __future__ import annotations

import pytest
import torch
from campaign import device_training

from ktir.device.autoload import register

register()


@pytest.mark.parametrize("seed", range(5))
def test_trainings_are_those_of_the_host(seed: int) -> None:
    assert not device_training.finding(seed)


@pytest.mark.parametrize(("ran_on", "off", "said"), [("spyre", 1e-3, "is off by 1.00e-03"), ("cpu", 0.0, "nothing ran on the chip")])
def test_what_differs_is_seen(ran_on: str, off: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = device_training.trained

    def other(what: device_training.Drawn, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        if device == "cpu":
            return trained(what, device, dtype)
        first, *others = trained(what, ran_on, dtype)
        return [first + off, *others]

    monkeypatch.setattr(device_training, "trained", other)
    assert said in device_training.finding(1)


def test_what_is_drawn_is_of_all_kinds() -> None:
    drawn = [device_training.drawn(seed) for seed in range(200)]
    assert {d.model for d in drawn} == set(device_training.MODELS)
    assert {d.loss for d in drawn} == set(device_training.LOSSES)
    assert {d.optimizer for d in drawn} == set(device_training.OPTIMIZERS)
    assert {d.dtype for d in drawn} == set(device_training.TYPES)
    assert all(any(d.way == way for d in drawn) for way in device_training.WAYS)
    assert {d.averaged for d in drawn} == {False, True}
