"""The tokens that transformers makes of a model in float64, and which prompts are a fair question to float16, by measure."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers
from tiny import WORDS

SURE = 4
"""Distance of the best two logits of a step, in errors of PyTorch's float16 there: each of the two may be twice as far off as that."""
DRAWN = 32
"""Prompts that are tried at once."""


class ByteCache(transformers.DynamicCache):
    """Keys and values are what float8 makes of them."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *others: Any, **options: Any) -> Any:
        held = (x.clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) for x in (key_states, value_states))
        return super().update(*held, *others, **options)


class Oracle:
    """A folder's model in float64, and the error of PyTorch's float16 from it; `cache` makes the one of keys and values."""

    def __init__(self, folder: str, cache: Callable[[], Any] = lambda: None) -> None:
        self.cache = cache
        load = getattr(transformers, transformers.AutoConfig.from_pretrained(folder).architectures[0]).from_pretrained
        self.half, self.wide = (load(folder, dtype=dtype).eval() for dtype in (torch.float16, torch.float64))
        if hasattr(self.wide.config.get_text_config(), "num_local_experts"):
            self.wide.set_experts_implementation("eager")  # the others know no float64

    @torch.no_grad()
    def tokens(self, prompts: list[list[int]], count: int, **images: torch.Tensor) -> tuple[list[list[int]], list[bool]]:
        """Greedy tokens of prompts of one length, and of which of them float16 leaves no doubt; `images` as transformers takes them."""
        asked = torch.tensor(prompts)
        out = self.wide.generate(
            asked,
            attention_mask=torch.ones_like(asked),
            past_key_values=self.cache(),
            max_new_tokens=count,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
            eos_token_id=None,
            pad_token_id=0,
            **images,
        )
        logits = torch.stack(out.logits, 1)
        if images:  # of each token, whether it is a place of an image: none of the new ones is
            kinds = torch.nn.functional.pad(images["mm_token_type_ids"], (0, count - 1))
            images = images | {"mm_token_type_ids": kinds}
        half = self.half(out.sequences[:, :-1], past_key_values=self.cache(), **images).logits[:, asked.shape[1] - 1 :].double()
        margin, error = logits.topk(2).values.diff(dim=-1).abs()[..., 0], (half - logits).abs().amax(-1)
        return out.sequences[:, asked.shape[1] :].tolist(), (margin > SURE * error).all(1).tolist()

    def fair(self, prefix: list[int], length: int, many: int, count: int) -> list[tuple[list[int], list[int]]]:
        """Prompts of `length` tokens behind a prefix, drawn at random, and the `count` tokens that follow each without doubt."""
        draw = torch.Generator().manual_seed(length)
        found: list[tuple[list[int], list[int]]] = []
        for _ in range(40):
            tails = torch.randint(5, WORDS, (DRAWN, length - len(prefix)), generator=draw).tolist()
            prompts = [prefix + tail for tail in tails]
            tokens, fair = self.tokens(prompts, count)
            found += [(p, t) for p, t, f in zip(prompts, tokens, fair, strict=True) if f]
            if len(found) >= many:
                return found[:many]
        raise AssertionError(f"float16 leaves doubts about nearly all prompts of {length} tokens: make the model's margins larger")


oracle = cache(Oracle)
"""One for each folder."""
