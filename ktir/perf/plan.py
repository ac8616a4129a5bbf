"""What is to be measured, as a file of YAML says it.

models:
  llama-3.1-8b: {family: llama, hidden_size: 4096, num_hidden_layers: 32, ...}   # as a config.json has it
dtype: [float16]
batch: [1]
prompt: [128, 512]     # tokens of a prefill: time to the first token
context: [2048]        # tokens that a step of decode looks back on: time between tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError

DTYPES = ("float16", "bfloat16", "float32", "float8")
LISTS: dict[str, list[Any]] = {"dtype": ["float16"], "batch": [1], "prompt": [], "context": []}
"""What a plan has one or several values of, and what holds where it says nothing."""


@dataclass(frozen=True)
class Case:
    """One program: `tokens` new ones of each of `batch` sequences, the last of `context`."""

    model: str
    config: dict[str, Any]
    dtype: str
    batch: int
    tokens: int
    context: int

    @property
    def metric(self) -> str:
        return "TTFT" if self.tokens > 1 else "ITL"

    @property
    def name(self) -> str:
        """One for each line of a table."""
        return f"{self.model} {self.dtype} batch {self.batch} {self.metric} {self.context}"


def read(path: Path) -> list[Case]:
    """The cases of a plan. Raises KtirError at the file for what it does not understand, and OSError."""
    import yaml

    def refuse(what: str) -> KtirError:
        return KtirError(what, str(path))

    try:
        plan = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise refuse(f"is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(plan, dict) or not isinstance(plan.get("models"), dict) or not plan["models"]:
        raise refuse("expects 'models:' with a name and a configuration for each")
    if unknown := sorted(str(key) for key in plan.keys() - {"models", *LISTS}):
        raise refuse(f"expects models, {', '.join(LISTS)}, but got '{unknown[0]}'")
    values = {key: _listed(plan.get(key, default)) for key, default in LISTS.items()}
    for key, given in values.items():
        for value in given:
            if key == "dtype" and value not in DTYPES:
                raise refuse(f"expects a dtype of {', '.join(DTYPES)}, but got {value!r}")
            if key != "dtype" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise refuse(f"expects positive numbers for '{key}', but got {value!r}")
    for name, config in plan["models"].items():
        if not isinstance(config, dict) or not isinstance(config.get("family"), str):
            raise refuse(f"expects 'family:', the model_type of transformers, in the configuration of '{name}'")
    steps = [(n, n) for n in values["prompt"]] + [(1, n) for n in values["context"]]
    if not steps:
        raise refuse("expects lengths in 'prompt:' or 'context:'")
    return [
        Case(str(name), config, dtype, batch, *step)
        for (name, config), dtype, batch, step in product(plan["models"].items(), values["dtype"], values["batch"], steps)
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
