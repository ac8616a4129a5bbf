"""What torch has for devices beyond operators: generators, storages that change their size, pinned memory, metadata, profiles, cells of
recurrent networks, fused attention with gradients.
"""

import gc
import io
import pickle

import pytest
import torch
from torch import _utils, nn
from torch.autograd import profiler
from torch.nn.attention import SDPBackend

from ktir.device.tensors import pinned


def test_a_generator_of_a_card_draws_what_one_of_the_host_draws() -> None:
    ours, host = torch.Generator("spyre").manual_seed(7), torch.Generator().manual_seed(7)
    assert (ours.device, host.device) == (torch.device("spyre:0"), torch.device("cpu"))
    assert isinstance(ours, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert torch.equal(torch.rand(5, device="spyre", generator=ours).cpu(), torch.rand(5, generator=host))
    for other in (ours.clone_state(), pickle.loads(pickle.dumps(ours))):
        assert other.device == ours.device
        assert torch.equal(torch.randn(3, device="spyre", generator=other).cpu(), torch.randn(3, generator=host.clone_state()))
    with pytest.raises(RuntimeError, match="The device index is out of range: there is no device 'spyre:5'"):
        torch.Generator("spyre:5")


def test_a_storage_changes_its_size_for_all_its_tensors(settled: None) -> None:
    x = torch.arange(8, dtype=torch.float16, device="spyre")
    y, before = x[2:4], torch.spyre.memory_allocated()  # type: ignore[attr-defined]
    storage = x.untyped_storage()
    assert storage.resize_(4096) is storage
    assert storage.nbytes() == 4096
    assert torch.spyre.memory_allocated() - before == 4096 - 256  # type: ignore[attr-defined]
    assert y.tolist() == [2, 3]
    x.add_(1)
    assert y.tolist() == [3, 4]
    storage.resize_(0)
    gc.collect()
    assert torch.spyre.memory_allocated() == before - 256  # type: ignore[attr-defined]
    storage.resize_(16)
    x.fill_(9)
    assert y.tolist() == [9, 9]
    host = torch.ones(2).untyped_storage()
    assert host.resize_(16).nbytes() == 16


def test_pinned_memory_is_known_as_such() -> None:
    x = torch.randn(6, 4).t()
    assert not x.is_pinned()
    there = x.pin_memory()
    assert there.is_pinned()
    assert there.stride() == x.stride()
    assert torch.equal(there, x)
    assert there[1:].is_pinned()
    assert torch.tensor(()).set_(there.untyped_storage()[4:], size=(2,), stride=(1,), storage_offset=0).is_pinned()
    assert torch.randn(3).untyped_storage().pin_memory("spyre").is_pinned("spyre")
    gc.collect()
    known = len(pinned._ranges)
    del there
    gc.collect()
    assert len(pinned._ranges) < known


def test_metadata_of_a_tensor_is_saved() -> None:
    x = torch.ones(3, device="spyre")
    assert _utils.get_tensor_metadata(x) == {}
    _utils.set_tensor_metadata(x, {"version_number": True})
    file = io.BytesIO()
    torch.save(x, file)
    for place, there in (("spyre", {"version_number": True}), ("cpu", {})):
        file.seek(0)
        assert _utils.get_tensor_metadata(torch.load(file, map_location=place)) == there


def test_a_profile_has_the_events_of_the_host(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(4, device="spyre")
    with profiler.profile(use_device="spyre") as profile:
        x.add(x)
    assert profile is not None
    assert "aten::add" in {event.name for event in profile.function_events or ()}
    assert "PrivateUse1 used in profiler" not in capfd.readouterr().err


def test_what_a_device_can_do() -> None:
    types = torch.accelerator.get_device_capability("spyre:0")["supported_dtypes"]
    assert {torch.float16, torch.bool, torch.float64} <= types
    assert torch.complex64 not in types


def test_storages_say_where_they_are() -> None:
    assert torch.ones(2, device="spyre").untyped_storage().is_spyre  # type: ignore[attr-defined]
    assert not torch.ones(2).untyped_storage().is_spyre  # type: ignore[attr-defined]


@pytest.mark.turn
@pytest.mark.parametrize(("kind", "bias"), [(nn.LSTM, True), (nn.LSTM, False), (nn.GRU, True), (nn.GRU, False)])
def test_recurrent_networks_and_their_gradients(kind: type[nn.Module], bias: bool) -> None:
    torch.manual_seed(0)
    here = kind(4, 6, num_layers=2, bias=bias)
    there = kind(4, 6, num_layers=2, bias=bias)
    there.load_state_dict(here.state_dict())
    there.to("spyre")
    x = torch.randn(3, 2, 4)
    found = []
    for module, given in ((here, x.clone()), (there, x.to("spyre"))):
        given.requires_grad_()
        result, state = module(given)
        last = state if isinstance(state, torch.Tensor) else state[1]
        (result.square().sum() + last.sum()).backward()
        found.append([result, last, given.grad, *(p.grad for p in module.parameters())])
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert ours.device.type == "spyre"
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.turn
@pytest.mark.parametrize("is_causal", [False, True])
def test_fused_attention_and_its_gradients(is_causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v, gradient = (torch.randn(2, 3, 5, 8) for _ in range(4))
    bias = torch.randn(3, 5, 5)
    op = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    there = [t.to("spyre") for t in (q, k, v)]
    assert torch.ops.aten._fused_sdp_choice(*there) == SDPBackend.OVERRIDEABLE.value
    mask = None if is_causal else bias.to("spyre")
    out, lse, cum_q, cum_k, most_q, most_k, seed, offset, _ = op(*there, attn_bias=mask, is_causal=is_causal)
    for t in (q, k, v, bias):
        t.requires_grad_()
    wanted = nn.functional.scaled_dot_product_attention(q, k, v, None if is_causal else bias, is_causal=is_causal)
    torch.testing.assert_close(out.cpu(), wanted)
    wanted.backward(gradient)
    wants = [True, True, True, not is_causal]
    back = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
    last = there[0].new_empty(0) if mask is None else mask
    found = back(gradient.to("spyre"), *there, last, wants, out, lse, cum_q, cum_k, most_q, most_k, 0.0, is_causal, seed, offset)
    for ours, theirs in zip(found[: 3 + wants[3]], (q.grad, k.grad, v.grad, bias.grad), strict=False):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)
