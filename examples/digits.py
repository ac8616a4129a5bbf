"""Train a small network on real digits, compile it for Spyre, classify held-out images on the emulated chip.

    python examples/digits.py [--keep DIR]

The data are scikit-learn's bundled 1,797 scans of handwritten digits (8x8 pixels). The network is trained in float32 with PyTorch on the
CPU for a few seconds, converted to float16 and compiled with `torch.compile(backend="spyre")`; every batch then runs on the instruction
emulator of the 32-core chip.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm

import ktir.lowering.inductor  # noqa: F401  registers the backend
from ktir import config
from ktir.runtime.executable import recorded

BATCH = 57


class Network(nn.Module):
    """64 -> 100 -> 100 -> 10 with layer norm and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(64, 100)
        self.norm = nn.LayerNorm(100)
        self.hidden = nn.Linear(100, 100)
        self.head = nn.Linear(100, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (batch, 64) to scores (batch, 10)."""
        h = torch.relu(self.embed(x))
        h = h + nn.functional.gelu(self.hidden(self.norm(h)))
        return self.head(h)


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int = 40) -> None:
    """A few seconds of Adam on the CPU."""
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(0)
    for _ in tqdm(range(epochs), desc="train", disable=None):
        for batch in torch.randperm(len(images), generator=generator).split(64):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="DIR", type=Path, help="write every level's KTIR, the assembly and the package to DIR")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    pixels, classes = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32) / 16
    labels = torch.tensor(classes)
    order = torch.randperm(len(images))
    train_set, test_set = order[:-360], order[-360:]

    model = Network()
    train(model, images[train_set], labels[train_set])
    model.eval()
    exact = Network()
    exact.load_state_dict({k: v.half().float() for k, v in model.state_dict().items()})
    half = model.half()
    compiled = torch.compile(half, backend="spyre", dynamic=False)

    x, y = images[test_set], labels[test_set]
    batches = list(zip(x.half().split(BATCH), y.split(BATCH), strict=True))
    correct = same = 0
    worst = worst_half = 0.0
    times = []
    with torch.no_grad(), recorded() as launches, config.patch(dump_dir=str(arguments.keep) if arguments.keep else None):
        for images_, labels_ in tqdm(batches, desc="classify on the emulator", disable=None):
            start = time.perf_counter()
            scores = compiled(images_)
            times.append(time.perf_counter() - start)
            eager = half(images_)
            reference = exact(images_.float())
            worst = max(worst, (scores.float() - reference).abs().max().item())
            worst_half = max(worst_half, (eager.float() - reference).abs().max().item())
            correct += int((scores.argmax(1) == labels_).sum())
            same += int((scores.argmax(1) == reference.argmax(1)).sum())

    report = launches[0].machine.report
    print(f"accuracy on {len(x)} held-out images: {correct / len(x):.1%}; same class as float32 eager: {same} of {len(x)}")
    print(f"largest difference from float32 eager: {worst:.2e} (eager float16: {worst_half:.2e})")
    print(f"a batch of {BATCH}: first {times[0]:.1f} s with compilation, then {statistics.median(times[1:-1]) * 1e3:.1f} ms")
    print(report)
    if arguments.keep:
        print(f"stages, assembly and package are in {arguments.keep}")


if __name__ == "__main__":
    main()
