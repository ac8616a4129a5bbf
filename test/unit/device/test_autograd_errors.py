"""Exceptions that Python raises inside of autograd come to who asked for gradients, as they do on the host."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest
import torch
from torch.utils.checkpoint import checkpoint


class _Mine(Exception):
    pass


def _raise(_: object) -> NoReturn:
    raise _Mine


def _of_tensor(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    y = x * 2
    y.register_hook(_raise)
    y.sum().backward()


def _of_gradient(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    x.register_post_accumulate_grad_hook(_raise)
    torch.autograd.backward((x * 2).sum())


def _of_node(device: str) -> None:
    x = torch.ones(3, requires_grad=True)
    y = (x * 2).to(device) * 3
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(_raise)
    torch.autograd.grad(y.sum(), x)


def _of_saved(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, _raise):
        y = x * x
    y.sum().backward()


def _of_checkpoint(device: str) -> None:
    x, calls = torch.ones(3, device=device, requires_grad=True), []

    def other_each_time(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return (x * 2).exp() if len(calls) == 1 else x[:2].exp()

    checkpoint(other_each_time, x, use_reentrant=False).sum().backward()


CASES: tuple[Callable[[str], None], ...] = (_of_tensor, _of_gradient, _of_node, _of_saved, _of_checkpoint)


def _caught(case: Callable[[str], None], device: str) -> tuple[type, str]:
    try:
        case(device)
    except Exception as error:
        return type(error), str(error).partition("\n")[0]
    raise AssertionError("nothing was raised")


def program(device: str) -> None:
    """What a process does, which ends where torch lets it end."""
    from ktir.device.autoload import register

    register()
    for case in CASES:
        assert _caught(case, device) == _caught(case, "cpu"), case
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is not None
    assert (x.grad.device, x.grad.tolist()) == (torch.device(device), [2.0] * 3)
    print("right")


@pytest.mark.parametrize(("cards", "device"), [("1", "spyre:0"), ("2", "spyre:1")])
def test_as_on_the_host(cards: str, device: str) -> None:
    environment = {**os.environ, "AIU_WORLD_SIZE": cards}
    ran = subprocess.run([sys.executable, __file__, device], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == "right\n", ran.stderr


if __name__ == "__main__":
    program(sys.argv[1])
