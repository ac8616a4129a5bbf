# pyright: reportMissingImports=false
"""Whether an answer is one that a request asks for, by transformers' logits for the tokens that came, in float64."""

from __future__ import annotations

from typing import Any

import torch
from oracle import SURE, oracle


def adjusted(logits: torch.Tensor, asked: Any, prompt: list[int], before: list[int]) -> torch.Tensor:
    """What vLLM's documentation says that a request makes of logits [words] behind the tokens `before` of its answer."""
    found = logits.clone()
    if asked.allowed_token_ids:
        kept = torch.zeros_like(found, dtype=torch.bool)
        kept[asked.allowed_token_ids] = True
        found[~kept] = -torch.inf
    for word, bias in (asked.logit_bias or {}).items():
        found[word] += bias
    seen = torch.tensor(sorted({*prompt, *before}))
    found[seen] = torch.where(found[seen] > 0, found[seen] / asked.repetition_penalty, found[seen] * asked.repetition_penalty)
    counts = torch.bincount(torch.tensor(before, dtype=torch.int64), minlength=len(found))
    return found - asked.frequency_penalty * counts - asked.presence_penalty * (counts > 0)


class Judge:
    """Of one model: how far its float16 is off at a step is how far an answer may be."""

    def __init__(self, folder: str, tokenizer: Any) -> None:
        self.oracle, self.tokenizer = oracle(folder), tokenizer

    @torch.no_grad()
    def _logits(self, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Behind each token [tokens, words], and how far off they may be [tokens]."""
        wide, half = (model(torch.tensor([tokens])).logits[0].double() for model in (self.oracle.wide, self.oracle.half))
        return wide, SURE * (wide - half).abs().amax(-1)

    def faults(self, prompt: list[int], asked: Any, answer: Any, number: int) -> list[str]:
        """Of the answer with this number; what is wrong with it, in words."""
        tokens = list(answer.token_ids)
        logits, doubt = self._logits(prompt + tokens)
        found = self._ends(asked, answer, tokens)
        noise = torch.Generator().manual_seed(asked.seed + number) if asked.seed is not None else None
        for i, token in enumerate(tokens):
            own, error = logits[len(prompt) - 1 + i], float(doubt[len(prompt) - 1 + i])
            scores = adjusted(own, asked, prompt, tokens[:i])
            if len(tokens[:i]) < asked.min_tokens:
                scores[[*([] if asked.ignore_eos else [2]), *(asked.stop_token_ids or [])]] = -torch.inf
            if asked.temperature:
                drawn = torch.empty(len(scores)).exponential_(generator=noise).double()
                scores, error = scores / asked.temperature - drawn.log(), error / asked.temperature
            behind = float(scores.max() - scores[token])
            if behind > 2 * error and not self.oracle.leaves_in_doubt(prompt + tokens[:i]):
                found.append(f"token {i} is {token}, {behind:.3g} behind the best one, where {error:.3g} is in doubt")
                break
            told = answer.logprobs[i][token].logprob if answer.logprobs else None
            if told is not None and abs(told - float(own.log_softmax(-1)[token])) > 2 * float(doubt[len(prompt) - 1 + i]) + 1e-3:
                found.append(f"logprob of token {i} is {told}, not {float(own.log_softmax(-1)[token])}")
        return found

    def _ends(self, asked: Any, answer: Any, tokens: list[int]) -> list[str]:
        """Whether it ends where it should, and its text is that of its tokens; the first `min_tokens` end nothing."""
        enders = {*(asked.stop_token_ids or []), *([] if asked.ignore_eos else [2])}
        if answer.finish_reason == "error":
            left = [word for word in asked.allowed_token_ids or [] if len(tokens) >= asked.min_tokens or word not in enders]
            return [f"no token is left behind {len(tokens)}, but {left}"] if left else []
        found, least = [], len(self._text(tokens[: asked.min_tokens]))
        text, before = self._text(tokens), self._text(tokens[:-1])
        first = min((text.find(stop, least) for stop in asked.stop or [] if stop in text[least:]), default=None)
        if first is not None and answer.text != text[:first]:
            found.append(f"text is {answer.text!r}, not {text[:first]!r}")
        if any(stop in before[least:] for stop in asked.stop or []) or any(token in enders for token in tokens[asked.min_tokens : -1]):
            found.append("it goes on behind what ends it")
        ended = len(tokens) > asked.min_tokens and tokens[-1] in enders
        reason = "stop" if ended or first is not None else "length"
        if answer.finish_reason != reason or (reason == "length" and len(tokens) != asked.max_tokens):
            found.append(f"it ends by {answer.finish_reason} after {len(tokens)} tokens, not by {reason}")
        return found

    def _text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)
