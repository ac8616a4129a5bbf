"""The seven families of language models, tiny, as `ktir-models` takes them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from models.families import EVEN, FAMILIES, build

NAMES = tuple(FAMILIES)


def _made(name: str) -> tuple[Any, torch.Tensor]:
    """A model and a prompt of 16 tokens."""
    ids = torch.randint(3, EVEN.vocabulary - 8, (1, 16), generator=torch.Generator().manual_seed(1))
    return build(name), ids


llama31, mistral_small, ministral8b, ministral14b, qwen25vl, gpt_oss, granite4 = (partial(_made, name) for name in NAMES)
