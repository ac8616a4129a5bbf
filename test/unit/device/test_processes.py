"""Tensors of the device that go to other processes."""

import multiprocessing
import subprocess
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ktir.device.autoload import register

register()


class _OnDevice(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index), device="spyre") * 2, index


def _answer(given: Any, answers: Any) -> None:
    tensor, parameter = given
    kinds = type(parameter), parameter.requires_grad, tensor.requires_grad
    answers.put((str(tensor.device), tensor.stride(), (tensor * 2).tolist(), (parameter.detach() + 1, kinds)))


def program() -> None:
    """A loader whose worker makes tensors on the device, a process that gets some and gives one back, and what cannot be sent."""
    found = list(DataLoader(_OnDevice(), batch_size=3, num_workers=1, timeout=100))
    assert [(x.device.type, x[:, 1].tolist()) for x, _ in found] == [("spyre", [0.0, 2.0, 4.0]), ("spyre", [6.0, 8.0, 10.0])]
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    tensor, parameter = torch.arange(6.0).reshape(2, 3).t().to("spyre"), torch.nn.Parameter(torch.ones(2, device="spyre"))
    process = context.Process(target=_answer, args=((tensor, parameter), answers))
    process.start()
    device, stride, doubled, (more, kinds) = answers.get(timeout=100)
    process.join()
    assert (device, stride, doubled) == ("spyre:0", (1, 3), [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]])
    assert (more.device.type, more.tolist(), kinds) == ("spyre", [2.0, 2.0], (torch.nn.Parameter, True, False))
    try:
        context.Pipe()[0].send(torch.ones(2, device="spyre", requires_grad=True) * 2)
    except RuntimeError as error:
        print(str(error)[:40])


def test_tensors_travel_by_value() -> None:
    ran = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False, timeout=300)
    assert ran.stdout == "Cowardly refusing to serialize non-leaf \n", ran.stderr


if __name__ == "__main__":
    program()
