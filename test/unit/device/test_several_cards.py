"""Several cards in one process: tensors, gradients, threads."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import torch
from torch._C._autograd import DeviceType


def program() -> None:
    """What a process with three cards does."""
    from ktir.device.autoload import register

    register()
    from ktir.device import spyre

    assert spyre.device_count() == torch.accelerator.device_count() == 3
    assert torch.ones(2, device="spyre:2").to("spyre:1").device == torch.device("spyre:1")
    with spyre.device(2):
        assert torch.ones(1, device="spyre").device.index == 2 == torch.accelerator.current_device_index()
    for unchanged in (torch.accelerator.set_device_index, spyre.set_device, torch.spyre._exchange_device):  # type: ignore[attr-defined]
        unchanged(-1)
        assert spyre.current_device() == 0
    with pytest.raises(RuntimeError, match="there is no device 'spyre:3'"):
        torch.accelerator.set_device_index(3)
    assert spyre.memory_allocated(2) == 0

    work, done = torch.ones(1 << 20, device="spyre:1"), torch.Event("spyre", enable_timing=True)
    spyre.synchronize(1)
    with spyre.Stream("spyre:1") as stream:
        assert spyre.current_device() == 1
        begin = stream.record_event(torch.Event("spyre", enable_timing=True))
        work.add_(1).to("spyre:2")
        done.record(spyre.current_stream(2))
        copied = stream.record_event(torch.Event("spyre:1", enable_timing=True))
    assert spyre.current_device() == 0
    done.synchronize()
    assert copied.device.index == 1
    copied.synchronize()
    assert begin.elapsed_time(copied) > 4 * (1 << 20) / 204.8e6, "the copy waits for what the card computes, and the card for the copy"
    with pytest.raises(RuntimeError, match="Event device 1 does not match other's device 2"):
        begin.elapsed_time(done)
    for event in (done, torch.Event("spyre:2")):
        with pytest.raises(RuntimeError, match="Event device 2 does not match recording stream's device 1"):
            event.record(stream)

    child = os.fork()  # the memory of all cards that was never written to takes none
    if not child:
        os._exit(0 if torch.full((2,), 3.0, device="spyre:2").to("spyre:1").tolist() == [3, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0

    found = []

    def backward(card: int) -> None:
        model = torch.nn.Linear(4, 3).to(f"spyre:{card}")
        x = torch.ones(2, 4, device=f"spyre:{card}", requires_grad=True)
        model(x).sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad.cpu(), model.weight.detach().cpu().sum(0).expand(2, 4))
        found.append(x.grad.device.index)

    threads = [threading.Thread(target=backward, args=(k,)) for k in (0, 1, 2, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 1, 2], found

    a, b = (torch.ones(4, device=f"spyre:{k}", requires_grad=True) for k in (1, 2))
    (a.to("spyre:2") * b * 3).sum().backward()
    assert a.grad is not None
    assert (a.grad.device.index, a.grad.tolist()) == (1, [3.0] * 4)
    for call in (lambda: a + b, lambda: a[b.long()], lambda: torch.normal(a, b)):
        with pytest.raises(RuntimeError, match="same device"):
            call()
    with pytest.raises(RuntimeError, match="Expected a 'spyre:2' generator device but found 'spyre:1'"):
        torch.rand(2, device="spyre:2", generator=torch.Generator("spyre:1"))
    profiled()
    print("right")
    late = Late()
    late.tensor = torch.ones(2, device="spyre")
    torch.late = late  # type: ignore[attr-defined]


def profiled() -> None:
    """A profile has what each card does, in each stream."""
    given = [torch.ones(3, device=f"spyre:{k}") for k in range(3)]
    torch.mul(given[0], 2)
    with torch.profiler.profile(profile_memory=True) as prof:
        torch.mul(given[0], 2)
        with torch.Stream("spyre:2") as stream:
            kept = given[2] * 2
        given[1].to("spyre:2")
    kinds = DeviceType.PrivateUse1
    rows = {(e.device_index, e.device_resource_id, e.activity_type) for e in prof.events() or () if e.device_type == kinds}
    assert {(0, 0, "kernel"), (2, stream.stream_id, "kernel"), (2, 0, "gpu_memcpy")} <= rows, rows
    path = Path(tempfile.mkdtemp()) / "trace.json"
    prof.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["pid"] for e in events if e.get("cat") == "kernel"} == {0, 2}
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} >= {"spyre:0", "spyre:2"}
    held = [e["args"] for e in events if e["name"] == "[memory]" and e["args"]["Addr"] == kept.data_ptr()]
    assert [(e["Device Id"], e["Bytes"]) for e in held] == [(2, kept.nbytes)]


class Late:
    """Computes when the interpreter ends."""

    tensor: torch.Tensor

    def __del__(self) -> None:
        _ = self.tensor * 3


@pytest.mark.turn
def test_three_cards() -> None:
    environment = {**os.environ, "AIU_WORLD_SIZE": "3"}
    ran = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.endswith("right\n"), ran.stderr
    assert "registered at" not in ran.stderr, "torch's table of kernels"


SMALL = """
import torch
from ktir.device import autoload
autoload.register()
held = []
try:
    while True:
        held.append(torch.empty(1 << 17, dtype=torch.uint8, device="spyre:1"))
except torch.OutOfMemoryError as error:
    print(len(held), error)
print([torch.spyre.memory_stats(card)["num_ooms"] for card in (0, 1)], torch.ones(1 << 17, device="spyre:0").sum().item())
del held
print(torch.spyre.memory_allocated(1), torch.ones(3, device="spyre:1").tolist())
"""


@pytest.mark.turn
def test_one_card_out_of_memory() -> None:
    sizes = {"AIU_WORLD_SIZE": "2", "FLEX_DEVICE": "MOCK", "FLEX_MOCK_DEVICE_MEMORY_SIZE": str(1 << 20)}
    ran = subprocess.run([sys.executable, "-c", SMALL], env={**os.environ, **sizes}, capture_output=True, text=True, check=True)
    said, others, after = ran.stdout.splitlines()
    assert said == (
        "8 Spyre out of memory. Tried to allocate 128.00 KiB. Card 1 has a total capacity of 1.00 MiB of which 0 bytes is free; the "
        "largest free range has 0 bytes, and 1.00 MiB is allocated by PyTorch."
    )
    assert (others, after) == ("[0, 1] 131072.0", "0 [1.0, 1.0, 1.0]")


@pytest.mark.parametrize(
    ("rank", "expected"), [("2", "spyre:2 2"), ("3", "LOCAL_RANK must be a card of this process, 0 to 2"), ("x", "LOCAL_RANK")]
)
def test_local_rank(rank: str, expected: str) -> None:
    text = "import torch; print(torch.ones(2, device='spyre').device, torch.spyre.current_device())"
    text = f"from ktir.device import autoload; autoload.register(); {text}"
    environment = {**os.environ, "AIU_WORLD_SIZE": "3", "LOCAL_RANK": rank}
    ran = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert expected in (ran.stderr if ran.returncode else ran.stdout)


if __name__ == "__main__":
    program()
