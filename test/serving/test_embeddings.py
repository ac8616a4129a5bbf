# pyright: reportMissingImports=false
"""Embeddings of texts through vLLM's API and its server, against transformers in float64."""

from pathlib import Path

import torch
import transformers
from loopback import serve
from test_generate import runner
from tiny import make_encoder
from torch._dynamo.utils import counters
from vllm import LLM

PROMPTS = [[5, 6, 7], [9], list(range(5, 45)), [8, 9], [300, 20, 100, 41] * 5]


@torch.no_grad()
def embedded(folder: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """Of each prompt, in float64; the model computes in `dtype`."""
    model = transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval()
    means = [model(torch.tensor([prompt])).last_hidden_state[0].double().mean(0) for prompt in PROMPTS]
    return [mean / mean.norm() for mean in means]


def check(folder: str, found: list[list[float]]) -> None:
    """No element is more than twice as far off as the worst one of PyTorch's float16."""
    exact = embedded(folder, torch.float64)
    unit = max(float((a - b).abs().max()) for a, b in zip(embedded(folder, torch.float16), exact, strict=True))
    for ours, expected in zip(found, exact, strict=True):
        assert (torch.tensor(ours).double() - expected).abs().max() < 2 * unit
        assert expected.abs().max() > 100 * unit


def test_embeddings_are_those_of_transformers(tmp_path: Path) -> None:
    """More texts than seats; nothing is compiled after the start."""
    folder = make_encoder(tmp_path)
    llm = LLM(folder, dtype="float16", max_model_len=64, max_num_seqs=4, max_num_batched_tokens=64, runner="pooling")
    graphs, launches = counters["stats"]["unique_graphs"], runner(llm).launches
    found = llm.embed([{"prompt_token_ids": prompt} for prompt in PROMPTS], use_tqdm=False)
    check(folder, [out.outputs.embedding for out in found])
    assert counters["stats"]["unique_graphs"] == graphs
    assert runner(llm).launches > launches


def test_the_server_embeds(tmp_path: Path) -> None:
    options = "--dtype float16 --max-model-len 64 --max-num-seqs 4 --max-num-batched-tokens 64 --runner pooling"
    with serve(make_encoder(tmp_path), *options.split()) as server:
        found = server.client.embeddings.create(model="tiny", input=PROMPTS, encoding_format="float")
    check(server.folder, [each.embedding for each in found.data])
