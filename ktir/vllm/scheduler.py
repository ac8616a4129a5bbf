"""What a request asks for may exclude every token: an engine ends such a request, and says why. vLLM's takes the first token of all."""

from __future__ import annotations

from typing import Any

import torch

from ktir.vllm.upstream import RequestStatus, Sampler, Scheduler

NO_TOKEN = -1
"""In the place of a token, where none is left."""
EXCLUDING = ("structured_outputs", "allowed_token_ids", "bad_words", "min_tokens", "ignore_eos")
"""What of a request excludes tokens: some of them, those that end it, or with grammars whatever would follow these."""


class StrictSampler(Sampler):
    """vLLM's, which tells where a row has nothing to be drawn from."""

    def apply_logits_processors(self, logits: torch.Tensor, *inputs: Any, **options: Any) -> torch.Tensor:
        found = super().apply_logits_processors(logits, *inputs, **options)
        self.is_empty = found.amax(-1) == -torch.inf  # by a grammar, which came before, or by what is applied here
        return found

    def forward(self, *inputs: Any, **options: Any) -> Any:
        found = super().forward(*inputs, **options)
        found.sampled_token_ids[self.is_empty] = NO_TOKEN
        return found


class SpyreScheduler(Scheduler):
    """vLLM's, which gives the reason of an error as what stopped the request."""

    def _update_request_with_output(self, request: Any, new_token_ids: list[int], is_stale: bool = False) -> tuple[list[int], bool]:
        held = request.structured_output_request
        is_over = new_token_ids and held is not None and held.grammar.is_terminated()
        if NO_TOKEN not in new_token_ids and not is_over:
            return super()._update_request_with_output(request, new_token_ids, is_stale)
        names = [name for name in EXCLUDING if getattr(request.sampling_params, name)] or ["logits processors"]
        there = request.num_output_tokens
        where = f"could follow the first {there} of the answer" if there else "the answer could begin with"
        request.stop_reason = f"{' and '.join(names)} leave no token that {where}"
        request.status = RequestStatus.FINISHED_ERROR
        request.resumable = False
        return [], True

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Of a grammar that is not to be compiled vLLM keeps the error to itself."""
        failed = {name: self.requests[name].structured_output_request for name in self.grammar_compile_error_reqs if name in self.requests}
        found = super().update_from_output(scheduler_output, model_runner_output)
        for output in (output for outputs in found.values() for output in outputs.outputs if output.request_id in failed):
            output.stop_reason = f"structured_outputs cannot be followed: {failed[output.request_id].grammar}"
        return found
