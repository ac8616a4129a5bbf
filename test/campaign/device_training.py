"""Random trainings on the device: a small model, a loss, an optimizer, three steps of eager PyTorch, the same as on the host.

    python test/campaign/device_training.py --programs 100 --seed 0

The oracle is the same training in float64. What the device may differ from it by is what the host differs from it by in the type of the
training, 16 times over, and 1e-5 of the value, or four units in the last place of a shorter type: losses of each step, parameters, their
averages and buffers at the end. Ends with status 1 where a training is wrong.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from campaign.spread import judge
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.optim import swa_utils
from torch.utils.checkpoint import checkpoint

from ktir.runtime import metrics

_CLASSES = 5
_STEPS = 3


class _Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0].mean(1)


class _Tied(nn.Module):
    """Words and classes have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.classes = nn.Embedding(_CLASSES, 8), nn.Linear(8, _CLASSES, bias=False)
        self.between = nn.Linear(8, 8)
        self.classes.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.between(self.words(x)).tanh().mean(1))


class _Again(nn.Module):
    """Is computed a second time on the way back."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.layers, x, use_reentrant=False)


class _Recurs(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.cells = kind(6, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0][:, -1]


MODELS: dict[str, tuple[Callable[[], list[nn.Module]], Callable[[], torch.Tensor]]] = {
    "linear": (lambda: [nn.Linear(7, 13), nn.GELU(), nn.Linear(13, _CLASSES)], lambda: torch.randn(6, 7)),
    "norm": (lambda: [nn.Linear(7, 16), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, _CLASSES)], lambda: torch.randn(4, 7)),
    "batch": (lambda: [nn.Linear(7, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, _CLASSES)], lambda: torch.randn(6, 7)),
    "image": (
        lambda: [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, _CLASSES)],
        lambda: torch.randn(3, 2, 8, 8),
    ),
    "words": (lambda: [nn.Embedding(11, 8), nn.Flatten(), nn.Linear(24, _CLASSES)], lambda: torch.randint(0, 11, (4, 3))),
    "attention": (lambda: [_Attends(), nn.Linear(8, _CLASSES)], lambda: torch.randn(2, 4, 8)),
    "lstm": (lambda: [_Recurs(nn.LSTM), nn.Linear(8, _CLASSES)], lambda: torch.randn(2, 3, 6)),
    "gru": (lambda: [_Recurs(nn.GRU), nn.Linear(8, _CLASSES)], lambda: torch.randn(2, 3, 6)),
    "directions": (lambda: [weight_norm(nn.Linear(7, 8)), nn.Softplus(), nn.Linear(8, _CLASSES)], lambda: torch.randn(4, 7)),
    "tied": (lambda: [_Tied()], lambda: torch.randint(0, _CLASSES, (4, 3))),
    "spectrum": (lambda: [spectral_norm(nn.Linear(7, 8)), nn.ELU(), nn.Linear(8, _CLASSES)], lambda: torch.randn(4, 7)),
    "again": (
        lambda: [_Again(nn.Linear(7, 16), nn.RMSNorm(16), nn.SiLU()), nn.Linear(16, _CLASSES)],
        lambda: torch.randn(4, 7),
    ),
    "signal": (
        lambda: [nn.Conv1d(4, 4, 3, padding=1, groups=2), nn.GroupNorm(2, 4), nn.Hardswish(), nn.Flatten(), nn.Linear(24, _CLASSES)],
        lambda: torch.randn(3, 4, 6),
    ),
}
LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross": functional.cross_entropy,
    "square": lambda y, t: functional.mse_loss(y, functional.one_hot(t, _CLASSES).to(y.dtype)),
    "smooth": lambda y, t: functional.smooth_l1_loss(y, functional.one_hot(t, _CLASSES).to(y.dtype)),
    "binary": lambda y, t: functional.binary_cross_entropy_with_logits(y, functional.one_hot(t, _CLASSES).to(y.dtype)),
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    # where a tiny gradient is divided by its own size, its sign is all that counts, and no bound holds: eps is far above the error
    "sgd": lambda p, **way: torch.optim.SGD(p, 0.05, **way),
    "nesterov": lambda p, **way: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01, **way),
    "adam": lambda p, **way: torch.optim.Adam(p, 0.01, eps=1e-3, amsgrad=True, **way),
    "adamw": lambda p, **way: torch.optim.AdamW(p, 0.01, eps=1e-3, **way),
    "rmsprop": lambda p, **way: torch.optim.RMSprop(p, 0.01, eps=1e-3, momentum=0.5, **way),
    "adagrad": lambda p, **way: torch.optim.Adagrad(p, 0.05, eps=1e-3, **way),
    "nadam": lambda p, **way: torch.optim.NAdam(p, 0.01, eps=1e-3, **way),
    "adamax": lambda p, **way: torch.optim.Adamax(p, 0.01, eps=1e-3, **way),
    "adadelta": lambda p, **way: torch.optim.Adadelta(p, 0.1, eps=1e-3, **way),
    "lbfgs": lambda p: torch.optim.LBFGS(p, 0.1, max_iter=3),
}
WAYS: tuple[dict[str, bool], ...] = ({}, {"foreach": False}, {"foreach": True}, {"fused": True})
"""How an optimizer goes through its parameters: by its own choice, one by one, taken apart by torch, in one operator."""
_FUSED = ("sgd", "nesterov", "adam", "adamw", "adagrad")
TYPES = {torch.float32: 1e-5, torch.float16: 4 * 2.0**-10, torch.bfloat16: 4 * 2.0**-7}
"""Types of trainings, and what of a value their results may be off by in any case."""


class Drawn(NamedTuple):
    """A training; `dtype`: of parameters and inputs."""

    seed: int
    model: str
    loss: str
    optimizer: str
    way: dict[str, bool]
    dtype: torch.dtype
    clipped: bool
    gathered: bool
    saved: bool
    scheduled: bool
    averaged: bool


def drawn(seed: int) -> Drawn:
    """The training of a seed."""
    r = random.Random(seed)
    model, loss, optimizer = (r.choice([*table]) for table in (MODELS, LOSSES, OPTIMIZERS))
    way, dtype = r.choice(WAYS), r.choice([*TYPES, torch.float32])
    if optimizer == "lbfgs":
        way, dtype = {}, torch.float32  # which decides by its own numbers when it is done
    elif "fused" in way and optimizer not in _FUSED:
        way = {}
    return Drawn(seed, model, loss, optimizer, way, dtype, *(r.random() < 0.4 for _ in range(5)))


def trained(what: Drawn, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """Losses, parameters and buffers of a training, in float64."""
    torch.manual_seed(what.seed)
    layers, inputs = MODELS[what.model]
    model = nn.Sequential(*layers())
    xs = [inputs() for _ in range(_STEPS)]
    model, xs = deepcopy(model).to(dtype).to(device), [(x.to(dtype) if x.is_floating_point() else x).to(device) for x in xs]
    target = torch.randint(0, _CLASSES, (len(xs[0]),)).to(device)
    optimizer, found = OPTIMIZERS[what.optimizer](model.parameters(), **what.way), []
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5)) if what.averaged else nn.Module()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5) if what.scheduled else None
    for x in xs:

        def step(x: torch.Tensor = x) -> float:
            if not what.gathered:
                optimizer.zero_grad()
            loss = LOSSES[what.loss](model(x), target)
            loss.backward()
            if what.clipped:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            found.append(loss.detach())
            return loss.item()

        optimizer.step(step)
        if schedule is not None:
            schedule.step()
        if isinstance(average, swa_utils.AveragedModel):
            average.update_parameters(model)
        if what.saved:
            file = io.BytesIO()
            torch.save((model.state_dict(), optimizer.state_dict()), file)
            file.seek(0)
            for each, state in zip((model, optimizer), torch.load(file), strict=True):
                each.load_state_dict(state)
    every = (*found, *model.parameters(), *model.buffers(), *average.parameters(), *average.buffers())
    return [t.detach().cpu().double() for t in every]


def finding(seed: int) -> str:
    """What is wrong with a training, empty if nothing is."""
    what = drawn(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact, host = (trained(what, "cpu", dtype) for dtype in (torch.float64, what.dtype))
        try:
            with metrics.counted() as launches:
                got = trained(what, "spyre", what.dtype)
        except Exception as error:
            return f"{what}: {type(error).__name__}: {error}"
    if not launches().chip:
        return f"{what}: nothing ran on the chip"
    for number, (mine, theirs, wanted) in enumerate(zip(got, host, exact, strict=True)):
        bound = 16 * (theirs - wanted).abs().max() + TYPES[what.dtype] * wanted.abs().max() + 1e-7
        if not bool(((mine - wanted).abs() <= bound).all()):
            return f"{what}: result {number} is off by {(mine - wanted).abs().max():.2e}, more than {bound:.2e}"
    return ""


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a training is wrong."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--programs", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first training")
    options = parser.parse_args(arguments)
    from ktir.device.autoload import register

    register()
    return judge(range(options.seed, options.seed + options.programs), "training", finding)


if __name__ == "__main__":
    sys.exit(main())
