"""Tensors on the device hold what tensors of the host hold: copies, views, factories, storages, files. The oracle is torch on the host."""

import copy
import io
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ktir.device import spyre
from ktir.device.operators import fallback
from ktir.device.tensors import pinned, storage

DTYPES = list(storage._CODES)
NAMES = [str(d).removeprefix("torch.") for d in DTYPES]


def some(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Numbers that every type holds."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 2 if dtype == torch.bool else torch.arange(count) % 7).reshape(shape).to(dtype)


def equal(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Same type, shape and bits; the first one is on the device."""
    assert got.device.type == "spyre"
    assert (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
    return torch.equal(got.cpu().contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_there_and_back(dtype: torch.dtype) -> None:
    x = some(dtype, 3, 5)
    assert equal(x.to("spyre"), x)
    assert equal(x.t().to("spyre"), x.t())
    assert equal(x.to("spyre").t(), x.t())
    assert equal(x.to("spyre")[1:, ::2], x[1:, ::2])


@pytest.mark.parametrize("source", DTYPES, ids=NAMES)
def test_every_type_becomes_every_type(source: torch.dtype) -> None:
    x = some(source, 2, 3)
    for target in DTYPES:
        assert equal(x.to("spyre").to(target), x.to(target)), target
        assert equal(x.to("spyre", target), x.to(target)), target
        assert torch.equal(x.to("spyre").to("cpu", target).view(torch.uint8), x.to(target).view(torch.uint8)), target


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_types_that_the_device_does_not_hold(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"the device 'spyre' does not hold {dtype} tensors; it holds int8, "):
        torch.empty(3, dtype=dtype, device="spyre")


def test_no_number_is_told_as_on_the_host() -> None:
    for device in ("cpu", "spyre"):
        with pytest.raises(RuntimeError, match="Empty tensor not supported"):
            torch.ops.aten._local_scalar_dense(torch.empty(0, device=device))


def test_nested_tensors_are_moved_and_printed() -> None:
    rows = [torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3)]
    on_host = torch.nested.nested_tensor(rows)
    for nested in (on_host.to("spyre"), torch.nested.nested_tensor([row.to("spyre") for row in rows]).clone()):
        assert nested.device == torch.device("spyre:0")
        assert all(part.device == nested.device and torch.equal(part.cpu(), row) for part, row in zip(nested.unbind(), rows, strict=True))
        assert repr(nested).replace(", device='spyre:0'", "") == repr(on_host)
        assert repr(nested.cpu()) == repr(on_host)
        for computed in (lambda x=nested: x + 1, lambda x=nested: torch.nn.functional.linear(x, torch.ones(5, 3, device="spyre"))):
            with pytest.raises(NotImplementedError, match="computes nothing of nested tensors with strided layout"):
                computed()


def test_quantized_tensors_are_refused() -> None:
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match="the device 'spyre' holds no quantized tensors"):
        quantized.to("spyre")
    with pytest.raises(TypeError, match="the device 'spyre' holds no quantized tensors"):
        torch.empty_like(quantized, device="spyre")


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "reshape": lambda x: x.view(6, 10),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "slice": lambda x: x[1:, :, 1::2],
    "select": lambda x: x[:, 2],
    "expand": lambda x: x[:, :1].expand(3, 4, 5),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "diagonal": lambda x: x.diagonal(0, 0, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "as_strided": lambda x: x.as_strided((4, 2), (3, 7), 5),
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split(2, 1)[1],
    "squeeze": lambda x: x[None].squeeze(),
    "movedim": lambda x: x.movedim(0, 1),
    "flatten": lambda x: x.flatten(1),
    "view_dtype": lambda x: x.view(torch.int32),
    "detach": lambda x: x.detach(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_their_memory(name: str) -> None:
    host = some(torch.float32, 3, 4, 5)
    ours = host.to("spyre")
    expected, got = VIEWS[name](host), VIEWS[name](ours)
    assert got.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
    assert got.storage_offset() == expected.storage_offset()
    assert equal(got, expected)
    if name != "expand":
        expected.fill_(9)
        got.fill_(9)
        assert equal(ours, host)


def test_a_view_that_does_not_fit() -> None:
    x = torch.zeros(6, device="spyre")
    with pytest.raises(RuntimeError, match="invalid for input of size 6"):
        x.view(4)
    with pytest.raises(RuntimeError, match="setStorage"):
        x.as_strided((4,), (2,))


FACTORIES: dict[str, Callable[[str], torch.Tensor]] = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones(2, 3, dtype=torch.int16, device=d),
    "full": lambda d: torch.full((2, 3), 2.5, device=d),
    "arange": lambda d: torch.arange(1, 9, 2, device=d),
    "arange of floats": lambda d: torch.arange(0, 1, 0.125, dtype=torch.float16, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "eye": lambda d: torch.eye(3, 4, device=d),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "scalar": lambda d: torch.tensor(True, device=d),
    "nothing": lambda d: torch.zeros(0, 3, device=d),
    "like": lambda d: torch.ones_like(torch.zeros(2, 3, device=d).t()),
    "new": lambda d: torch.zeros(1, device=d).new_full((3,), 7),
    "channels last": lambda d: torch.zeros(2, 3, 4, 5, device=d).contiguous(memory_format=torch.channels_last),
    "rand": lambda d: torch.rand(5, device=d),
    "randn": lambda d: torch.randn(3, 4, dtype=torch.float16, device=d),
    "randint": lambda d: torch.randint(0, 100, (7,), device=d),
    "randperm": lambda d: torch.randperm(9, device=d),
    "bernoulli": lambda d: torch.full((9,), 0.5, device=d).bernoulli(),
    "normal": lambda d: torch.zeros(4, device=d).normal_(2, 3),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.filterwarnings("ignore::ktir.device.operators.fallback.FallbackWarning")
def test_factories(name: str) -> None:
    torch.manual_seed(3)
    expected = FACTORIES[name]("cpu")
    torch.manual_seed(3)
    assert equal(FACTORIES[name]("spyre"), expected)


def test_sizes_that_are_none() -> None:
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        torch.empty(2, -1, device="spyre")
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device="spyre", pin_memory=True)


def test_more_dims_than_arrays_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "_said", set())  # else an operator that fell back in another test of this process says nothing
    wanted = torch.arange(6.0).reshape([1] * 63 + [3, 2])
    x = torch.empty([1] * 63 + [3, 2], device="spyre", requires_grad=True)
    with torch.no_grad():
        x.copy_(wanted)
    assert x.detach().transpose(63, 64).cpu().flatten().tolist() == [0, 2, 4, 1, 3, 5]
    with pytest.warns(UserWarning, match="programs have tensors of up to 64 dims"):
        x.mul(2).flatten().sum().backward()
    assert x.grad is not None
    assert (x.grad.dim(), x.grad.flatten().tolist()) == (65, [2.0] * 6)
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        x.sum(dim=0)


def test_numbers() -> None:
    x = some(torch.float16, 4).to("spyre")
    assert x[3].item() == 3.0
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert float(x[2]) == 2.0
    assert bool(x[1])
    with pytest.raises(RuntimeError):
        x.item()
    with pytest.raises(TypeError, match="host memory first"):
        x.numpy()


def test_copies_into_parts() -> None:
    host, ours = torch.zeros(4, 6), torch.zeros(4, 6, device="spyre")
    for x, d in ((host, "cpu"), (ours, "spyre")):
        x[1:3, ::2] = some(torch.int32, 2, 3).to(d)
        x[:, 5].copy_(torch.full((4,), 3.0))
        x[0] = 8
        x[3:].zero_()
    assert equal(ours, host)
    back = torch.zeros(4, 6)
    back[:, 1:].copy_(ours[:, 1:])
    assert torch.equal(back[:, 1:], host[:, 1:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.bool])
@pytest.mark.parametrize("copied", [torch.clone, lambda x: torch.empty_like(x).copy_(x), lambda x: x.to("spyre", copy=True)])
def test_a_copy_lies_as_what_it_is_a_copy_of(dtype: torch.dtype, copied: Callable[[torch.Tensor], torch.Tensor]) -> None:
    host = some(dtype, 5, 70)
    x = host.to("spyre")
    computed = (x | x) if dtype == torch.bool else x + x
    expected = (host | host) if dtype == torch.bool else host + host
    assert storage.allocation_of(computed).whole is not None
    copy = copied(computed)
    assert storage.allocation_of(copy).whole is storage.allocation_of(computed).whole
    assert equal(copy, expected)
    copy.zero_()
    assert equal(computed, expected)
    assert equal(copy, torch.zeros_like(expected))
    again = computed.clone()
    computed.copy_(x)
    assert equal(again, expected)
    assert equal(computed, host)
    other = torch.empty(70, 5, dtype=dtype, device="spyre").t()
    assert equal(other.copy_(again).contiguous(), expected)


def test_resize_and_set() -> None:
    host, ours = some(torch.int64, 6), some(torch.int64, 6).to("spyre")
    for x in (host, ours):
        x.resize_(2, 5)
    assert ours.shape == (2, 5)
    assert ours.flatten()[:6].tolist() == host.flatten()[:6].tolist()
    other = torch.empty(0, dtype=torch.int64, device="spyre").set_(ours.untyped_storage(), 2, (3,), (1,))
    other.fill_(9)
    assert ours.flatten()[:6].tolist() == [0, 1, 9, 9, 9, 5]
    for x in (host, ours):  # beyond the end, a storage grows
        torch.empty(0, dtype=torch.int64, device=x.device).set_(x.untyped_storage(), 8, (30,), (1,))
    assert ours.untyped_storage().nbytes() == host.untyped_storage().nbytes() == 38 * 8
    with pytest.raises(RuntimeError, match="expected a storage on 'spyre:0'"):
        other.set_(torch.zeros(3, dtype=torch.int64).untyped_storage())
    assert torch.ops.aten.set_.default(other).numel() == 0


def test_text() -> None:
    x = torch.tensor([[1.0, 2.5], [float("nan"), 4.0]])
    assert repr(x.to("spyre")) == repr(x)[:-1] + ", device='spyre:0')"
    assert repr(torch.zeros(0, device="spyre")) == "tensor([], device='spyre:0')"


def test_files_and_copies(tmp_path: Any) -> None:
    model = torch.nn.Linear(3, 2).to("spyre")
    tied = {"a": model.weight, "b": model.weight.t()}
    file = tmp_path / "weights.pt"
    torch.save(tied, file)
    back = torch.load(file)
    assert equal(back["a"], model.weight.detach().cpu())
    assert back["b"].untyped_storage().data_ptr() == back["a"].untyped_storage().data_ptr()
    assert torch.load(file, map_location="cpu")["a"].device.type == "cpu"
    torch.save(torch.ones(2), file)
    assert equal(torch.load(file, map_location="spyre"), torch.ones(2))
    twin = copy.deepcopy(model)
    assert torch.equal(twin.weight, model.weight)
    assert twin.weight.untyped_storage().data_ptr() != model.weight.untyped_storage().data_ptr()
    assert equal(pickle.loads(pickle.dumps(model.weight)).detach(), model.weight.detach().cpu())
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    torch.nn.Linear(3, 2).to("spyre").load_state_dict(torch.load(buffer))


def test_safetensors(tmp_path: Any) -> None:
    """What is saved is what the device holds, whatever form that is in."""
    files = pytest.importorskip("safetensors.torch")
    x = torch.arange(12.0).view(3, 4).half()
    files.save_file({"a": x.to("spyre") + 1}, tmp_path / "a")
    assert equal(files.load_file(tmp_path / "a")["a"].to("spyre"), x + 1)


def test_storages() -> None:
    held = torch.UntypedStorage(8, device="spyre")
    assert (held.device, held.nbytes()) == (torch.device("spyre:0"), 8)
    assert list(torch.UntypedStorage([1, 2, 3], device="spyre").cpu()) == [1, 2, 3]
    assert torch.zeros(3, device="spyre").untyped_storage().clone().nbytes() == 12


@pytest.mark.parametrize("nbytes", [0, 8])
def test_storages_that_have_become_too_small(nbytes: int) -> None:
    """Their tensors are refused, as by the host where they are shown; there is nothing behind them to read or to write."""
    x, ones = torch.ones(3, device="spyre"), torch.ones(3, device="spyre")
    x.untyped_storage().resize_(nbytes)
    refused: list[Callable[[], Any]] = [x.cpu, x.clone, lambda: x + 1, lambda: x.add_(1), lambda: x.fill_(1), x.zero_, lambda: x[2].item()]
    for call in [*refused, lambda: torch.add(ones, 1, out=x), lambda: ones.copy_(x), lambda: torch.equal(x, ones)]:
        with pytest.raises(RuntimeError, match="out of bounds for storage of size"):
            call()
    x.untyped_storage().resize_(12)
    assert x.fill_(2).tolist() == [2.0] * 3


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.int32, torch.float64])
@pytest.mark.filterwarnings("ignore::ktir.device.operators.fallback.FallbackWarning")
def test_slices_of_storages_share_their_bytes(dtype: torch.dtype) -> None:
    host, size = some(dtype, 3, 5), dtype.itemsize
    ours = host.to("spyre")
    for first, last in ((3 * size, 9 * size), (1, 4 * size + 1), (15 * size, 15 * size)):  # the second one begins between two elements
        parts = [torch.empty(0, dtype=dtype, device=x.device).set_(x.untyped_storage()[first:last]) for x in (host, ours)]
        assert equal(parts[1], parts[0])
        assert equal(parts[1] == parts[1], parts[0] == parts[0])
        for part in parts:
            part[1:3].zero_()
            part.logical_not_() if dtype == torch.bool else part.add_(1)
        assert equal(ours.view(torch.uint8), host.view(torch.uint8))
    assert list(ours.untyped_storage()[2:7]) == list(host.untyped_storage()[2:7])


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.int8, torch.float8_e5m2])
def test_new_memory_is_filled_where_results_must_not_depend_on_it(dtype: torch.dtype) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        for make in (
            lambda device: torch.empty(3, dtype=dtype, device=device),
            lambda device: torch.zeros(2, dtype=dtype, device=device).resize_(4),
            lambda device: torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=device),
        ):
            ours, host = (make(device).cpu().contiguous().view(torch.uint8) for device in ("spyre", "cpu"))
            assert torch.equal(ours, host)
    finally:
        torch.use_deterministic_algorithms(False)


def test_handles_are_no_addresses() -> None:
    x, y = torch.zeros(5, device="spyre"), torch.zeros(5, device="spyre")
    assert x.data_ptr() > 1 << 48
    assert x[2:].data_ptr() == x.data_ptr() + 8
    assert abs(x.data_ptr() - y.data_ptr()) >= 128


def test_modules_move() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = {n: t.clone() for n, t in model.state_dict().items()}
    moved = model.to("spyre").half()
    assert all(t.device.type == "spyre" for t in moved.state_dict().values())
    assert all(torch.equal(t.cpu(), state[n].to(t.dtype)) for n, t in moved.state_dict().items())
    assert next(moved.cpu().parameters()).device.type == "cpu"
    with torch.device("spyre"):
        assert torch.nn.Linear(2, 2).weight.device.type == "spyre"
    assert torch.nn.Linear(2, 2, device="meta").to_empty(device="spyre").weight.device.type == "spyre"


def test_threads_and_children() -> None:
    results: list[bool] = []

    def work(k: int) -> None:
        x = torch.full((50,), float(k))
        results.append(all(equal(x.to("spyre")[i:], x[i:]) for i in range(50)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    kept = torch.arange(4).to("spyre")
    child = os.fork()
    if not child:
        os._exit(0 if kept.cpu().tolist() == [0, 1, 2, 3] and torch.ones(2).to("spyre").tolist() == [1, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_pinned_memory() -> None:
    """Programs that pin their data go on working where the device is there."""
    data = torch.utils.data.TensorDataset(torch.arange(6.0))
    loaded = [batch[0] for batch in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)]
    assert torch.cat(loaded).tolist() == list(range(6))
    assert torch.ones(2).pin_memory().to("spyre", non_blocking=True).tolist() == [1, 1]
    assert not torch.ones(2).is_pinned()
    before = dict(pinned._ranges)
    made = [torch.ones(2, pin_memory=True), torch.empty_strided((2, 2), (1, 2), pin_memory=True), torch.empty(0, pin_memory=True)]
    made += [torch.arange(2.0).to("spyre").to("cpu", non_blocking=True), torch.empty_like(made[0], pin_memory=True).resize_(99)]
    assert all(t.is_pinned() for t in made)
    assert (made[0].tolist(), made[3].tolist()) == ([1, 1], [0, 1])
    made.clear()
    assert pinned._ranges == before


def test_generators() -> None:
    spyre.manual_seed(5)
    state = spyre.get_rng_state()
    first = torch.rand(4, device="spyre").cpu()
    assert torch.equal(first, torch.rand(4, generator=torch.Generator().manual_seed(5)))
    spyre.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="spyre").cpu(), first)
    assert spyre.initial_seed() == 5
    before = torch.get_rng_state()
    torch.rand(4, device="spyre")
    assert torch.equal(torch.get_rng_state(), before), "the generator of the host is another one"
    with torch.random.fork_rng(devices=[0], device_type="spyre"):
        spyre.manual_seed(1)
    spyre.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="spyre").cpu(), first)


def test_generators_of_another_device_are_refused() -> None:
    ours, host = torch.Generator("spyre").manual_seed(3), torch.Generator().manual_seed(3)
    same = torch.rand(2, generator=host)
    assert torch.equal(torch.rand(2, device="spyre", generator=ours).cpu(), same)
    assert torch.equal(ours.get_state(), host.get_state())
    for call in (lambda: torch.rand(2, generator=ours), lambda: torch.empty(2).bernoulli_(generator=ours)):
        with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'spyre'"):
            call()
    for call in (lambda: torch.rand(2, device="spyre", generator=host), lambda: torch.ones(2, device="spyre").normal_(generator=host)):
        with pytest.raises(RuntimeError, match="Expected a 'spyre' device type for generator but found 'cpu'"):
            call()


def test_lazy_modules() -> None:
    assert nn.LazyLinear(3).to(torch.float16).half().weight.dtype == torch.float16
    assert nn.LazyLinear(3, device="spyre")(torch.ones(2, 4, device="spyre")).shape == (2, 3)
    for lazy in (nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.LazyConv1d(3, 2)):
        model = nn.Sequential(lazy)
        own = model[0].weight
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        x = torch.arange(24.0).view(2, 3, 4)
        got = model.to("spyre")(x.to("spyre"))
        assert model[0].weight is own is optimizer.param_groups[0]["params"][0]
        assert {t.device.type for t in model.state_dict().values()} == {"spyre"}
        torch.testing.assert_close(got.cpu(), model.to("cpu")(x))


@pytest.mark.parametrize("preserve", [True, False])
def test_a_checkpoint_draws_again_what_it_drew(preserve: bool) -> None:
    def gradient(reentrant: bool | None) -> torch.Tensor:
        torch.manual_seed(3)
        x = torch.randn(4, 64).to("spyre").requires_grad_()

        def dropped(x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(x, 0.5, True) * x

        if reentrant is None:
            y = dropped(x)
        else:
            y = checkpoint(dropped, x, use_reentrant=reentrant, preserve_rng_state=preserve)
        y.sum().backward()
        assert x.grad is not None
        return x.grad.cpu()

    for reentrant in (True, False):
        assert torch.equal(gradient(reentrant), gradient(None)) == preserve
    before = torch.spyre.get_rng_state()  # type: ignore[attr-defined]
    with torch.random.fork_rng(device_type="spyre"):
        torch.rand(3, device="spyre")
    assert torch.equal(torch.spyre.get_rng_state(), before)  # type: ignore[attr-defined]
