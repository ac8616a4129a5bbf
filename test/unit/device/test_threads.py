"""Threads that use the same tensors: what one writes another one does not lose, and reading changes nothing that is read."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ktir.device.operators import eager, fallback, kernels, known
from ktir.device.tensors import storage


def at_once(*calls: Callable[[], Any]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_another_thread_wrote_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator in place is computed from what the tensor holds when the result is written."""
    known.forget()  # a call that has come before goes another way
    x = torch.zeros(4, device="spyre")
    run, others = eager.run, iter([1, 1])

    def interrupted(*given: Any) -> Any:
        found = run(*given)
        for _ in zip(range(1), others, strict=False):
            at_once(lambda: x.add_(10))
        return found

    monkeypatch.setattr(eager, "run", interrupted)
    x.add_(1)
    assert next(others, None) is None
    assert x.tolist() == [21.0] * 4


@pytest.mark.parametrize("name", ["copy", "equal", "host"])
def test_launches_wait_for_what_reads_on_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads a tensor arranges it, and gives away the range where its bytes were."""
    host = torch.full((1 << 19,), 3.0)
    warm, x, same = (host.to("spyre") for _ in range(3))
    _ = warm + 1
    lent: list[threading.Thread] = []

    def lend(tensor: torch.Tensor, **given: Any) -> torch.Tensor:
        alias = storage.on_host(tensor, **given)
        if tensor is x and not lent:
            lent.append(threading.Thread(target=lambda: x + 1))
            lent[0].start()
            lent[0].join(1.0)
        return alias

    monkeypatch.setattr(fallback if name == "host" else kernels, "on_host", lend)
    if name == "copy":
        assert torch.equal(x.cpu(), host)
    elif name == "equal":
        assert torch.equal(x, same)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.equal(torch.histc(x, 2, 0, 6).cpu(), torch.tensor([0.0, host.numel()]))
    lent[0].join()
