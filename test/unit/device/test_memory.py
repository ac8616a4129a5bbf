"""What is counted of a card's memory, and what happens where there is none left."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from ktir.device import spyre
from ktir.runtime import notices
from ktir.runtime.memory.card import card

MEBIBYTE = 1 << 20


def test_memory_is_counted(settled: None) -> None:
    before, requests = spyre.memory_allocated(), spyre.memory_stats()["allocation.all.allocated"]
    spyre.reset_peak_memory_stats()
    x = torch.empty(3 * MEBIBYTE, dtype=torch.uint8, device="spyre")
    y = x[5:]
    assert spyre.memory_allocated() - before == 3 * MEBIBYTE == torch.accelerator.memory_allocated() - before
    assert spyre.memory_stats()["allocation.all.allocated"] == requests + 1
    assert spyre.memory_stats()["allocated_bytes.large_pool.current"] >= 3 * MEBIBYTE
    del x
    assert spyre.memory_allocated() - before == 3 * MEBIBYTE, "the view is there"
    del y
    assert spyre.memory_allocated() == before
    assert spyre.max_memory_allocated() - before == 3 * MEBIBYTE
    spyre.reset_peak_memory_stats()
    assert spyre.max_memory_allocated() == before == spyre.memory_reserved()
    assert dict(torch.accelerator.memory_stats()) == dict(spyre.memory_stats())
    torch.accelerator.reset_accumulated_memory_stats()
    assert spyre.memory_stats()["allocation.all.allocated"] == 0
    spyre.empty_cache()


def test_what_has_no_elements_takes_nothing(settled: None) -> None:
    before = spyre.memory_stats()
    empty = [torch.empty(*size, dtype=dtype, device="spyre") for size in ((0,), (3, 0)) for dtype in (torch.float16, torch.int64)]
    after = spyre.memory_stats()
    assert all(after[f"{name}.all.current"] == before[f"{name}.all.current"] for name in ("allocation", "allocated_bytes"))
    assert len({x.untyped_storage().data_ptr() for x in empty}) == len(empty)
    torch.testing.assert_close(torch.cat([empty[0], torch.ones(3, device="spyre").half()]).cpu(), torch.ones(3).half())
    empty[0].resize_(2).fill_(7)
    assert spyre.memory_allocated() == before["allocated_bytes.all.current"] + 256
    empty[0].untyped_storage().resize_(0)
    assert spyre.memory_allocated() == before["allocated_bytes.all.current"]


def test_out_of_memory() -> None:
    free, whole = spyre.mem_get_info()
    assert (spyre.get_device_properties().total_memory, spyre.get_device_properties("spyre:0").multi_processor_count) == (whole, 32)
    summary = spyre.memory_summary()
    assert "PyTorch Spyre memory summary, device ID 0" in summary
    assert len({len(line) for line in summary.splitlines() if line}) == 1
    assert whole == 7 << 34
    assert free == torch.accelerator.get_memory_info()[0]
    with pytest.raises(torch.OutOfMemoryError, match=r"allocate 16.00 GiB. Card 0 has a total capacity of 112.00 GiB .* the largest free"):
        torch.empty((1 << 34) + MEBIBYTE, dtype=torch.uint8, device="spyre")
    assert spyre.memory_stats()["num_ooms"] >= 1
    held = [torch.empty(1 << 34, dtype=torch.uint8, device="spyre") for _ in range(6)]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2, 1 << 34, dtype=torch.uint8, device="spyre")
    del held
    assert card(0).used < whole


def test_no_room_for_a_launch(on_chip: None) -> None:
    """As anywhere else; it is no fault of the program, which the chip runs when there is room."""
    weight, results = torch.arange(1 << 14).reshape(128, 128).half() % 7, list[torch.Tensor]()
    x, turned = weight.to("spyre"), torch.compile(lambda x: x.T.contiguous().sum(1), fullgraph=True)
    expected = weight.T.sum(1)
    assert torch.equal((x * 1).cpu(), weight)  # which lies for a program now, and has to lie otherwise for the next one
    for k in range(6):
        if k in (1, 4):
            x = weight.to("spyre") * 1
            held = _all_but(x.nbytes)
            with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate .* Card 0 has a total capacity of 112.00 GiB"):
                turned(x)
            with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate"):
                x.sum(0)
            del held
        results.append(turned(x))
    assert all(torch.equal(found.cpu(), expected) for found in results)
    assert torch.equal(x.sum(0).cpu(), expected)


def _all_but(nbytes: int) -> list[torch.Tensor]:
    """What takes the memory of card 0, but for less than so many bytes."""
    held, size = list[torch.Tensor](), 1 << 34
    while size >= nbytes:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="spyre"))
        except torch.OutOfMemoryError:
            size //= 2
    return held


def test_what_refers_to_itself_is_collected_first() -> None:
    gc.disable()
    try:
        for _ in range(20):
            ring: list[object] = [torch.empty(1 << 33, dtype=torch.uint8, device="spyre")]
            ring.append(ring)
            del ring
    finally:
        gc.enable()


def test_accelerator() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("spyre")
    assert torch.accelerator.device_count() == 1
    assert torch.accelerator.current_device_index() == 0
    with torch.accelerator.device_index(0):
        torch.accelerator.synchronize()
    with pytest.raises(RuntimeError, match="there is no device 'spyre:3'"):
        torch.accelerator.set_device_index(3)
    torch.accelerator.empty_cache()


@pytest.mark.filterwarnings("ignore::ktir.device.operators.fallback.FallbackWarning")
def test_what_travels_is_told() -> None:
    steps: list[tuple[str, int]] = []

    def observer(step: Any) -> None:
        steps.append((step.kind, step.nbytes))

    card(0).observers.append(observer)
    try:
        x = torch.ones(64, 4).to("spyre")
        y = x.clone()
        y[0].cpu()
        y[0, 0].item()
        torch.linalg.norm(x.double())
    finally:
        card(0).observers.remove(observer)
    assert steps[:4] == [("H2D", 1024), ("D2D", 1024), ("D2H", 16), ("D2H", 4)]
    assert steps[-2:] == [("D2H", 2048), ("H2D", 8)], "an operator that falls back"


_NO_TENSOR = {
    "empty": lambda device: torch.empty(1 << 62, device=device),
    "zeros": lambda device: torch.zeros(1 << 40, 1 << 40, device=device),
    "bytes": lambda device: torch.empty(1 << 61, dtype=torch.float32, device=device),
    "strides": lambda device: torch.empty_strided((2,), (1 << 62,), device=device),
    "negative strides": lambda device: torch.empty_strided((2,), (-1,), device=device),
    "other dims": lambda device: torch.empty_strided((2, 3), (1,), device=device),
    "no size": lambda device: torch.empty(-1, device=device),
    "new_empty": lambda device: torch.ones(3, device=device).new_empty(1 << 62),
    "resize_": lambda device: torch.ones(3, device=device).resize_(1 << 62),
    "contiguous": lambda device: torch.ones(1, device=device).expand(1 << 62).contiguous(),
    "products": lambda device: torch.ones(1, 1, device=device).expand(1 << 40, 1 << 40).contiguous(),
    "full": lambda device: torch.full((1 << 62,), 1.0, device=device),
    "repeat": lambda device: torch.ones(3, device=device).repeat_interleave(1 << 61),
    "storage": lambda device: torch.ones(3, device=device).untyped_storage().resize_(1 << 62),
    "of no size": lambda device: torch.ones(3, device=device).untyped_storage().resize_(-1),
    "large": lambda device: torch.empty(1 << 50, device=device),
}


@pytest.mark.parametrize("name", _NO_TENSOR)
def test_sizes_that_no_tensor_has(name: str) -> None:
    for device in ("cpu", "spyre"):
        with pytest.raises(RuntimeError):
            _NO_TENSOR[name](device)
    assert torch.empty(1 << 40, 0, 1 << 20, device="spyre").numel() == 0
    assert str(torch.ones(1, device="spyre").expand(1 << 62)) == "tensor([1., 1., 1.,  ..., 1., 1., 1.], device='spyre:0')"


def test_no_room_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    notices.forget()
    assert spyre.get_diagnostic_report() is None
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 34, dtype=torch.float16, device="spyre")
    report = spyre.get_diagnostic_report()
    assert report is not None
    assert report["failure"]["category"] == "out_of_memory"
    assert report["hardware_state"][0]["capacity_bytes"] == 7 << 34
