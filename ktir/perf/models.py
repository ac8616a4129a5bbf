"""A language model of transformers, or a part of its layers, with weights that have no values, and a cache for it.

The cache and its shapes are found by a pass on the device "meta", so that whatever layers keep is there: keys and values, all of them or a
window, convolutions and states.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ktir.diagnostics import KtirError
from ktir.perf.plan import Case
from ktir.target import DATASHEET, LANES

E4M3 = torch.float8_e4m3fn
NARROW = "float8"
"""A dtype of a plan: products of linear layers between the embedding and the logits have operands of one byte, all else is float16."""


def dtype_of(case: Case) -> torch.dtype:
    """Of activations."""
    return torch.float16 if case.dtype == NARROW else getattr(torch, case.dtype)


class NarrowLinear(nn.Module):
    """A linear layer of products of float8: its weights have a scale for each channel, and each token gets one."""

    def __init__(self, inner: int, outer: int, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outer, inner, dtype=E4M3, device="meta"), requires_grad=False)
        self.scale = nn.Parameter(torch.empty(1, outer, dtype=torch.float32, device="meta"), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[.., inner] -> [.., outer]."""
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().amax(-1, keepdim=True).float() / torch.finfo(E4M3).max
        found = torch.ops.aten._scaled_mm((rows / scale).to(E4M3), self.weight.t(), scale, self.scale, out_dtype=x.dtype)
        return (found if self.bias is None else found + self.bias).view(*x.shape[:-1], -1)


def _narrow(model: nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, NarrowLinear(child.in_features, child.out_features, child.bias))


def _experts(layer: Any, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Experts of one layer [tokens, size] -> the same: a few choices read the weights of those that are chosen; with more of them than
    there are experts, all tokens pass all experts, whose weights are read once.
    """
    few, experts = ids.numel() < layer.num_experts, torch.arange(layer.num_experts, device=x.device)

    def product(rows: torch.Tensor, name: str) -> torch.Tensor:
        """[choices or experts, rows of each, inner] -> the same with another size."""
        held = [part[ids.reshape(-1)] if few else part for part in getattr(layer, name)]
        found = torch.cat([torch.bmm(rows, part if layer.is_transposed else part.transpose(1, 2)) for part in held], -1)
        if layer.has_bias:
            bias = getattr(layer, f"{name}_bias")
            found = found + (bias[ids.reshape(-1)] if few else bias)[:, None]
        return found

    given = x.repeat_interleave(ids.shape[1], 0)[:, None] if few else x.expand(layer.num_experts, *x.shape)
    found = product(layer._apply_gate(product(given, "gate_up_proj")), "down_proj")
    if few:
        return (found[:, 0] * weights.reshape(-1, 1)).view(*ids.shape, -1).sum(1).to(x.dtype)
    share = torch.where(ids == experts[:, None, None], weights, 0.0).sum(-1)
    return (found * share[..., None]).sum(0).to(x.dtype)


def _in_parts(model: nn.Module, most: int = DATASHEET.span_bytes) -> None:
    """Weights of experts as tensors of at most so many bytes, as one descriptor spans: of all experts some of the columns."""
    for layer in model.modules():
        for name in ("gate_up_proj", "down_proj"):
            whole = getattr(layer, name, None)
            if not isinstance(whole, nn.Parameter) or whole.dim() != 3:
                continue
            columns = 2 if layer.is_transposed else 1
            sticks = -(-whole.shape[columns] // LANES)
            count = next(n for n in range(1, sticks + 1) if sticks % n == 0 and whole.numel() * whole.itemsize // n <= most)
            parts = [nn.Parameter(part.detach().contiguous(), requires_grad=False) for part in whole.chunk(count, columns)]
            delattr(layer, name)
            setattr(layer, name, nn.ParameterList(parts))


Kinds = tuple[str | None, ...]
"""Of layers, as `layer_types` of a configuration has them; None where it has not."""


def kinds_of(config: Any) -> Kinds:
    """Of all layers of a decoder's configuration."""
    return tuple(getattr(config, "layer_types", None) or [None] * config.num_hidden_layers)


def configured(case: Case, kinds: Kinds | None = None) -> Any:
    """The configuration of transformers, with layers of these kinds alone if asked. Raises KtirError for one that there is not."""
    import transformers

    given = {key: value for key, value in case.config.items() if key != "family"}

    def made(given: dict[str, Any]) -> Any:
        return transformers.AutoConfig.for_model(case.config["family"], **given)

    try:
        whole = made(given)
    except (ValueError, TypeError) as error:
        raise KtirError(f"the configuration of '{case.model}': {str(error).splitlines()[0]}") from None
    if kinds is None:
        return whole
    fewer: dict[str, Any] = {"num_hidden_layers": len(kinds)}
    if kinds[0] is not None:
        fewer["layer_types"] = list(kinds)
    return made(given | ({"text_config": given["text_config"] | fewer} if "text_config" in given else fewer))


def model_of(case: Case, kinds: Kinds | None = None) -> tuple[Any, Any]:
    """A model's decoder and the product that makes logits, on the device "meta"."""
    import transformers
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    config, dtype = configured(case, kinds), dtype_of(case)
    forms = (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText)
    form = next((form for form in forms if type(config) in form._model_mapping), None)
    if form is None:
        raise KtirError(f"transformers has no language model of the family '{case.config['family']}'")
    with torch.device("meta"):
        model: Any = form.from_config(config, dtype=dtype).eval()
    decoder, logits = model.get_decoder(), model.get_output_embeddings()
    if hasattr(decoder.config, "num_local_experts"):
        ALL_EXPERTS_FUNCTIONS.register("ktir", _experts)
        model.set_experts_implementation("ktir")
        _in_parts(decoder)
    if case.dtype == NARROW:
        _narrow(decoder)
    return decoder, logits


class Step(nn.Module):
    """Embeddings [batch, tokens, size] -> what the last token [batch, size] comes to behind all layers."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, embedded: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        found = self.decoder(inputs_embeds=embedded, position_ids=positions, past_key_values=cache, use_cache=True)
        return found.last_hidden_state[:, -1]


def cache_of(case: Case, decoder: Any) -> Any:
    """What the decoder's layers keep of `case.context` tokens, made by a pass of few tokens on the device "meta"."""
    import transformers

    config = decoder.config
    cache = transformers.StaticCache(config=config, max_cache_len=case.context)
    for layer in cache.layers:
        if isinstance(length := getattr(layer, "cumulative_length", None), torch.Tensor):
            layer.cumulative_length = length.to("meta")
    with torch.no_grad(), torch.device("meta"):
        few = min(case.context, 8)
        decoder(
            inputs_embeds=torch.empty(case.batch, few, config.hidden_size, dtype=dtype_of(case)),
            position_ids=torch.arange(few).expand(case.batch, -1),
            past_key_values=cache,
            use_cache=True,
        )
    return cache


def on_host(cache: Any, before: int) -> Any:
    """The cache with tensors that have values, for a step with so many tokens before it."""
    for layer in cache.layers:
        for name, value in vars(layer).items():
            if isinstance(value, torch.Tensor):
                setattr(layer, name, torch.zeros_like(value, device="cpu"))
            elif isinstance(value, dict):  # states have numbers
                setattr(layer, name, {k: torch.zeros_like(v, device="cpu") if isinstance(v, torch.Tensor) else v for k, v in value.items()})
        layer.device = torch.device("cpu")
        if hasattr(layer, "has_previous_state"):
            layer.has_previous_state = dict.fromkeys(layer.has_previous_state, before > 0)
        if hasattr(layer, "cumulative_length_int"):  # of a window, how far it is filled is a number of Python's: that of the few tokens
            layer.cumulative_length_int = before
    return cache


def kept_bytes(cache: Any, before: int) -> int:
    """Bytes that a step reads of its cache where `before` tokens precede it: keys and values of those that it sees, and all states."""
    if not before:
        return 0
    found = 0
    for layer in cache.layers:
        keys = getattr(layer, "keys", None)
        if isinstance(keys, torch.Tensor):
            found += sum(t.numel() // t.shape[2] * min(before, t.shape[2]) * t.itemsize for t in (keys, layer.values))
        for states in (getattr(layer, "conv_states", {}), getattr(layer, "recurrent_states", {})):
            found += sum(t.numel() * t.itemsize for t in states.values() if t is not None)
    return found
