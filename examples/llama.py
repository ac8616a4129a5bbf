"""A Llama of two layers with random weights generates tokens on the device: `model.to("spyre")`, `torch.compile`.

    pip install 'ktir[models]'
    python examples/llama.py [--tokens N] [--half]

The prompt is one program, the step that makes a token another one: keys and values live on the card in a cache of fixed size that the
programs write in place, so that every step has the same shapes. The tokens must be those that eager PyTorch generates on the host.
"""

from __future__ import annotations

import argparse
import copy
import logging
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

try:
    import transformers
except ImportError:
    sys.exit("llama.py needs the package transformers: pip install 'ktir[models]'")
import torch
from tqdm import tqdm

from ktir.device.autoload import register
from ktir.runtime import metrics

PROMPT = 13


def make_model() -> Any:
    """A Llama as small as its parts allow."""
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def forward(model: Any, ids: torch.Tensor, position: torch.Tensor, cache: Any) -> torch.Tensor:
    """Logits of one forward pass, as it is compiled."""
    return model(input_ids=ids, position_ids=position, past_key_values=cache, use_cache=True).logits


def generate(step: Callable[..., torch.Tensor], model: Any, prompt: torch.Tensor, count: int, name: str) -> tuple[list[int], list[float]]:
    """`count` tokens after the prompt, each the most probable one, and the seconds that each took."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=prompt.shape[1] + count)
    position = torch.arange(prompt.shape[1], device=model.device).unsqueeze(0)
    tokens: list[int] = []
    times: list[float] = []
    ids = prompt.to(model.device)
    with torch.no_grad():
        for _ in tqdm(range(count), desc=name, disable=None):
            start = time.perf_counter()
            logits = step(model, ids, position, cache)
            times.append(time.perf_counter() - start)
            tokens.append(int(logits[0, -1].argmax()))
            ids, position = (torch.tensor([[n]], device=model.device) for n in (tokens[-1], prompt.shape[1] + len(tokens) - 1))
    return tokens, times


def main() -> int:
    """Run the example; 1 if the tokens differ from those of eager PyTorch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=24, metavar="N", help="how many tokens to generate (default: %(default)s)")
    parser.add_argument("--half", action="store_true", help="weights and activations in float16; eager PyTorch may then choose differently")
    arguments = parser.parse_args()
    if arguments.tokens < 3:
        parser.error("--tokens must be at least 3")

    logging.getLogger("ktir").setLevel(logging.ERROR)  # the summary says where it runs
    model = make_model()
    model = model.half() if arguments.half else model

    register()  # `import torch` has done it where ktir is installed
    on_card = copy.deepcopy(model).to("spyre")

    prompt = torch.randint(3, 512, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    compiled = torch.compile(forward, dynamic=False, fullgraph=True)
    with metrics.counted() as launches:
        tokens, times = generate(compiled, on_card, prompt, arguments.tokens, "compile and generate")
    expected, eager = generate(forward, model, prompt, arguments.tokens, "eager PyTorch")

    print("prompt:", *prompt[0].tolist())
    print("tokens:", *tokens)
    same = sum(a == b for a, b in zip(tokens, expected, strict=True))
    print(f"{same} of {len(tokens)} tokens are those of eager PyTorch")
    print(f"prompt of {PROMPT}: {times[0]:.1f} s with compilation; first step: {times[1]:.1f} s with compilation")
    place = "the KTIR executor" if launches().executor else "the emulated chip"  # the former runs what has no instruction stream
    warm, own = (statistics.median(t[2:]) * 1e3 for t in (times, eager))
    print(f"a step, warm: {warm:.1f} ms on {place} (eager PyTorch {own:.1f} ms)")
    return 0 if same == len(tokens) or arguments.half else 1


if __name__ == "__main__":
    sys.exit(main())
