# pyright: reportMissingImports=false
"""A plugin of pytest that runs vLLM's own tests on the chip: `-p of_vllm`, in a folder with the `tests` of vLLM's sources.

Tests of generation have tiny models of the kinds that they name, and an engine for short prompts. of_vllm.yaml says which tests there are,
and why some are left out. A test that passes without a launch of the chip fails.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ |= {"KTIR_FALLBACK": "error", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}

import pytest
import torch
import yaml
from quiet import quiet
from stand_ins import CONFIGURATIONS, redirections
from tiny_kinds import KINDS

from ktir.runtime import metrics
from ktir.vllm.attention import PagedAttention, PagedAttentionBackend, StepInputs
from ktir.vllm.programs import Programs, groups
from ktir.vllm.runner import Inputs

LIST = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
SIZES = {"max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 256}
"""Of an engine, where a test says nothing else."""
MOST_BLOCKS = 4096
"""Of the 8192 that tests make; so many of a large model's can be addressed."""


class WholeStep(PagedAttention):
    """Of a step what a runner makes of it: programs, each compiled.

    Keys and values lie side by side, [blocks, heads, block size, 2 * size].
    """

    def forward(
        self, layer: Any, query: Any, key: Any, value: Any, kv_cache: Any, attn_metadata: Any, output: Any, *others: Any, **more: Any
    ) -> Any:
        common = attn_metadata.common
        starts, seen = common.query_start_loc_cpu.tolist(), common.seq_lens.tolist()
        lengths = [b - a for a, b in itertools.pairwise(starts)]
        if kv_cache.dtype == torch.uint8:
            kv_cache = kv_cache.view(torch.float8_e4m3fn)
        assert common.block_table_tensor.max() < MOST_BLOCKS
        caches = tuple(part.transpose(1, 2).contiguous() for part in kv_cache[:MOST_BLOCKS].split(self.head_size, -1))
        page = caches[0].shape[1]
        shapes = Programs(len(lengths), max(lengths), -(-max(seen) // page), page)
        for group in groups(lengths):
            new, longest = lengths[group[0]], max(seen[i] for i in group)
            shape = shapes.decode(len(group), longest) if new == 1 else shapes.prefill(new, longest)
            inputs = Inputs(shape, page, [False], 1, None)
            padded = [x.new_zeros(shape.sequences, shape.tokens, *x.shape[1:]) for x in (query, key, value)]
            for row, i in enumerate(group):
                own = slice(starts[i], starts[i + 1])
                inputs.put(row, torch.zeros(new, dtype=torch.int64), torch.zeros(1, new, dtype=torch.int64), seen[i])
                pages = -(-seen[i] // page)
                inputs.pages[0][row, :pages] = common.block_table_tensor[i, :pages]
                inputs.slots[0][row, :new] = common.slot_mapping[own]
                for there, here in zip(padded, (query, key, value), strict=True):
                    there[row, :new] = here[own]
            q, k, v = (x.flatten(0, 1) for x in padded)
            found = self._run(layer, q, k, v, caches, inputs.of_group(0))
            for row, i in enumerate(group):
                output[starts[i] : starts[i + 1]] = found[row * shape.tokens : row * shape.tokens + new]
        return output

    @torch.inference_mode()
    def _run(self, layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, caches: Any, step: StepInputs) -> torch.Tensor:
        def called(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            return PagedAttention.forward(self, layer, q, k, v, caches, step, out)

        return torch.compile(called, backend="spyre", fullgraph=True, dynamic=False)(q, k, v, torch.empty_like(q))


class WholeStepBackend(PagedAttentionBackend):
    @staticmethod
    def get_impl_cls() -> type[WholeStep]:
        return WholeStep


def listed(name: str) -> tuple[str, str]:
    """Of a test `run` or `leave`, and why: the first entry that fits."""
    for entry in LIST:
        if any(fnmatch(name, pattern) for pattern in entry["tests"]):
            return ("run", "") if "leave" not in entry else ("leave", entry["leave"])
    return "leave", "no entry of the list"


def pytest_configure(config: pytest.Config) -> None:
    folder = Path(os.environ.get("KTIR_STAND_INS") or tempfile.mkdtemp(prefix="stand-ins-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["KTIR_STAND_INS"] = str(folder)
    os.environ["VLLM_MODEL_REDIRECT_PATH"] = str(folder / "models.json")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is left out, and let what runs find its models and our backend."""
    for item in items:
        kind, why = listed(item.nodeid)
        if kind == "leave":
            item.add_marker(pytest.mark.skip(reason=f"left out: {why}"))
    running = [item for item in items if not item.get_closest_marker("skip")]
    named = {str(value) for item in running for value in getattr(getattr(item, "callspec", None), "params", {}).values()}
    redirections(Path(os.environ["KTIR_STAND_INS"]), named & (CONFIGURATIONS.keys() | KINDS.keys()))
    _short(import_module("tests.conftest").VllmRunner)
    quiet()
    for module in {getattr(item, "module", None) for item in items}:
        if hasattr(module, "BACKENDS_TO_TEST"):
            _ours(module)


def _short(runner: Any) -> None:
    """Let vLLM's class that runs an engine for a test make it for short prompts, of the model that stands for the one that is named."""
    stock = runner.__init__
    standing = import_module("vllm.transformers_utils.utils").maybe_model_redirect

    def init(self: Any, model_name: str, *others: Any, **options: Any) -> None:
        if options.get("tokenizer_name"):
            options["tokenizer_name"] = standing(options["tokenizer_name"])
        stock(self, standing(model_name), *others, **SIZES | options)

    runner.__init__ = init


def _ours(module: Any) -> None:
    """Of the backends that a file tests, ours stands alone; the one that vLLM tests with larger blocks is none of them."""
    from ktir.vllm.upstream import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, f"{__name__}.{WholeStepBackend.__name__}")
    for name in [name for name in vars(module) if name.endswith("BACKENDS_TO_TEST")]:
        setattr(module, name, [AttentionBackendEnum.CUSTOM])
    module.is_torch_equal_or_newer = lambda version: False


@pytest.fixture(autouse=True)
def on_the_chip(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever passes has launched programs."""
    with metrics.counted() as launches:
        yield
    if not request.node.get_closest_marker("skip"):
        assert launches().chip > 0, "nothing ran on the chip"
