"""Which answers of an engine are transformers', which part from them where numbers of the model's type may, and which are wrong.

Each token is held against the greedy one that transformers in float32 has behind the same tokens, so that one which differs excuses none
of those behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

SURE = 4
"""Distance of two logits of a token, in PyTorch's error there: each of the two may be twice as far off as that."""


class Judged(NamedTuple):
    """Counts of answers: those of transformers, those that part from it only where the model's type leaves a doubt, and others."""

    equal: int
    doubted: int
    wrong: int

    def line(self) -> str:
        """Of a table."""
        shares = (f"{name} {count / sum(self):.1%}" for name, count in self._asdict().items())
        return f"answers as transformers'       {', '.join(shares)}"


@torch.no_grad()
def judged(folder: str, answers: Sequence[tuple[Sequence[int], Sequence[int]]], dtype: torch.dtype) -> Judged:
    """Of answers, each a prompt and its tokens, by a model that computes in `dtype`."""
    import transformers

    load = getattr(transformers, transformers.AutoConfig.from_pretrained(folder).architectures[0]).from_pretrained
    wide, narrow = (load(folder, dtype=each).eval() for each in (torch.float32, dtype))
    counts = [0, 0, 0]
    for prompt, tokens in answers:
        given, behind = torch.tensor([[*prompt, *tokens[:-1]]]), slice(len(prompt) - 1, None)
        of_wide, of_narrow = (_Seen.of(model, given, behind) for model in (wide, narrow))
        greedy = of_wide.logits.argmax(1).tolist() == list(tokens)
        sure = ~(of_wide.ties(of_narrow, torch.tensor(tokens)) | of_wide.routes(of_narrow))
        differs = of_wide.logits.argmax(1) != torch.tensor(tokens)
        counts[0 if greedy else 2 if bool((sure & differs).any()) else 1] += 1
    return Judged(*counts)


class _Seen(NamedTuple):
    """Of tokens the logits [tokens, words], and those of routers, [tokens, experts] for each layer of experts, of which each token takes
    `chosen`."""

    logits: torch.Tensor
    routers: tuple[torch.Tensor, ...]
    chosen: int

    @classmethod
    def of(cls, model: Any, given: torch.Tensor, behind: slice) -> _Seen:
        """What a model says behind tokens [1, tokens]."""
        config = model.config.get_text_config()
        chosen = config.num_experts_per_tok if getattr(config, "num_local_experts", 0) else 0
        found = model(given, output_router_logits=True) if chosen else model(given)
        routers = tuple(layer.float().flatten(0, -2)[behind] for layer in found.router_logits) if chosen else ()
        return cls(found.logits[0, behind].float(), routers, chosen)

    def ties(self, other: _Seen, tokens: torch.Tensor) -> torch.Tensor:
        """Per token whether it is as good as the best one as far as the other one tells them apart."""
        apart = self.logits.amax(1) - self.logits.gather(1, tokens[:, None])[:, 0]
        return apart <= SURE * (other.logits - self.logits).abs().amax(1)

    def routes(self, other: _Seen) -> torch.Tensor:
        """Per token whether it may go to other experts: the last one that is taken and the best one that is not are near each other."""
        found = torch.zeros(len(self.logits), dtype=torch.bool)
        for mine, its in zip(self.routers, other.routers, strict=True):
            *_, taken, best = mine.topk(self.chosen + 1).values.unbind(-1)
            found |= taken - best < (its - mine).abs().amax(-1)
        return found
