"""The tokens that transformers makes of a model in float64, and which prompts are a fair question to float16, by measure."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers
from tiny import WORDS

SURE = 4
"""Distance of the best two logits of a step, in errors of PyTorch's float16 there: each of the two may be twice as far off as that."""
DRAWN = 64
"""Prompts that are tried at once."""
FIRST = 8
"""Tokens after which those that are in doubt by then are left."""


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
        config = self.wide.config.get_text_config()
        self.chosen: int = config.num_experts_per_tok if hasattr(config, "num_local_experts") else 0
        """Experts of each token."""
        if self.chosen:
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

    @torch.no_grad()
    def leaves_in_doubt(self, given: list[int]) -> bool:
        """Whether float16 may choose other experts for the last one of these tokens than float64 does."""
        if not self.chosen:
            return False
        wide, half = (
            torch.stack([layer.double()[-1] for layer in model(torch.tensor([given]), output_router_logits=True).router_logits])
            for model in (self.wide, self.half)
        )
        taken, *_, best = wide.topk(self.chosen + 1).values[..., self.chosen - 1 :].unbind(-1)
        return bool((taken - best < (wide - half).abs().amax(-1)).any())

    def wrong(self, cases: list[tuple[list[int], list[int]]], found: list[list[int]]) -> list[tuple[list[int], list[int]]]:
        """Of prompts and the tokens that follow without doubt, those of which others were found: two answers may part behind a token whose
        experts float16 leaves in doubt, but no more than one in ten of them."""
        parted = [(prompt, tokens, other) for (prompt, tokens), other in zip(cases, found, strict=True) if tokens != other]
        at = [next(i for i, (a, b) in enumerate(zip(tokens, other, strict=True)) if a != b) for _, tokens, other in parted]
        doubts = [self.leaves_in_doubt(prompt + tokens[:i]) for (prompt, tokens, _), i in zip(parted, at, strict=True)]
        excused = sum(doubts) <= len(cases) / 10
        return [(tokens, other) for (_, tokens, other), doubt in zip(parted, doubts, strict=True) if not (doubt and excused)]

    def fair(self, prefix: list[int], length: int, many: int, count: int) -> list[tuple[list[int], list[int]]]:
        """Prompts of `length` tokens behind a prefix, drawn at random, and the `count` tokens that follow each without doubt."""
        draw = torch.Generator().manual_seed(length)
        found: list[tuple[list[int], list[int]]] = []
        for _ in range(40):
            tails = torch.randint(5, WORDS, (DRAWN, length - len(prefix)), generator=draw).tolist()
            prompts = [prefix + tail for tail in tails]
            if count > FIRST:
                prompts = [p for p, fair in zip(prompts, self.tokens(prompts, FIRST)[1], strict=True) if fair]
            tokens, fair = self.tokens(prompts, count) if prompts else ([], [])
            found += [(p, t) for p, t, f in zip(prompts, tokens, fair, strict=True) if f]
            if len(found) >= many:
                return found[:many]
        raise AssertionError(f"float16 leaves doubts about nearly all prompts of {length} tokens: make the model's margins larger")


oracle = cache(Oracle)
"""One for each folder."""
