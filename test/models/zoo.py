"""25 tiny models compiled with default options: are they right, and what ran where?

python test/models/zoo.py [NAME ...] [--dtype float16] [--engine spyre]
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from models import zoo_networks, zoo_transformers
from torch import nn

from ktir.runtime import metrics

MODELS = zoo_transformers.MODELS | zoo_networks.MODELS

CLOSE = 2e-5
"""How far float32 may be from float64, of the largest value: some hundred roundings of 2^-24 each."""
WORSE = 1.5
"""How many times as far as eager half precision may be from the same weights in float64, in the largest and in the mean square error."""


@dataclass(frozen=True)
class Outcome:
    """How far a compiled model and eager PyTorch are from float64, and what ran where in its second call."""

    error: tuple[float, float]
    eager_error: tuple[float, float]
    largest: float
    dtype: torch.dtype
    launches: metrics.Launches
    warnings: tuple[str, ...]

    @property
    def right(self) -> bool:
        if self.dtype is torch.float32:
            return self.error[0] <= CLOSE * max(1.0, self.largest)
        # a result that is exact but for its own rounding; eager is closer than that only by chance
        last_place = self.largest * torch.finfo(self.dtype).eps / 2
        return all(ours <= max(WORSE * theirs, last_place) for ours, theirs in zip(self.error, self.eager_error, strict=True))

    @property
    def wholly_on_chip(self) -> bool:
        return self.launches.chip > 0 and not self.launches.executor and not self.launches.torch


def _as(inputs: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    return tuple(t.to(dtype) if t.is_floating_point() else t for t in inputs)


def _distance(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    difference = a.double() - b
    return difference.abs().max().item(), difference.square().mean().sqrt().item()


def build(name: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    return module.eval().to(dtype), _as(inputs, dtype)


def run(name: str, dtype: torch.dtype, **options: Any) -> Outcome:
    """Compile a model and call it twice: the second time nothing is new."""
    module, inputs = build(name, dtype)
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exact = _wide(module)(*_as(inputs, torch.float64))
        eager = module(*inputs)
        compiled = torch.compile(module, backend="spyre", fullgraph=True, options=options)
        compiled(*inputs)
        with metrics.counted() as launches:
            actual = compiled(*inputs)
    for given, wanted in ((actual.dtype, eager.dtype), (actual.shape, eager.shape), (actual.stride(), eager.stride())):
        assert given == wanted, f"{given} where eager has {wanted}"
    said = tuple(dict.fromkeys(str(w.message) for w in caught if "error:" in str(w.message) or "warning:" in str(w.message)))
    largest = exact.abs().max().item()
    return Outcome(_distance(actual, exact), _distance(eager, exact), largest, dtype, launches(), said)


def _wide(module: nn.Module) -> nn.Module:
    """The same weights in float64, in which PyTorch has no grouped matmul for experts."""
    wide = copy.deepcopy(module).double()
    for part in wide.modules():
        config: Any = getattr(part, "config", None)
        if "_experts_implementation" in dir(config):
            config._experts_implementation = "eager"
    return wide


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; all without one")
    parser.add_argument("--dtype", choices=("float16", "float32", "bfloat16"), default="float16")
    parser.add_argument("--engine", choices=("spyre", "ktir"), default="spyre")
    arguments = parser.parse_args()
    right = whole = 0
    names = arguments.names or list(MODELS)
    for name in names:
        start = time.perf_counter()
        try:
            outcome = run(name, getattr(torch, arguments.dtype), engine=arguments.engine)
        except Exception as error:  # a model that fails is a line of the table, and the others are still of interest
            print(f"{name:16} FAILS {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
            continue
        right, whole = right + outcome.right, whole + outcome.wholly_on_chip
        ratio = outcome.error[0] / outcome.eager_error[0] if outcome.eager_error[0] else outcome.error[0]
        verdict, ran = "right" if outcome.right else "WRONG", outcome.launches
        distance = f"{outcome.error[0]:9.2e} ({ratio:5.2f} x eager)"
        where = f"chip {ran.chip:3} executor {ran.executor:2} torch {ran.torch:2}"
        print(f"{name:16} {verdict} {distance}  {where} {time.perf_counter() - start:6.1f} s", flush=True)
        for message in outcome.warnings:
            print("    " + message.splitlines()[0][:220], flush=True)
    print(f"{right} of {len(names)} right, {whole} wholly on the chip ({arguments.dtype}, engine {arguments.engine})")


if __name__ == "__main__":
    main()
