"""The page on coverage, made from the results of a run over the operator database."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

ORDER = ("no code", "passes", "falls back", "untraced", "fails", "wrong", "crashes")
DTYPES = ("float32", "float16")


def worst(result: dict[str, Any]) -> str:
    """The worst outcome among a variant's samples; `empty` where eager PyTorch had no result for any."""
    return max(result["counts"], key=ORDER.index, default="empty")


def page(results: Sequence[dict[str, Any]]) -> str:
    """The page as Markdown."""
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for result in results:
        by_name.setdefault(result["name"], {})[result["dtype"]] = result
    most = max((sum(r["counts"].values()) for r in results), default=0)
    lines = [
        _HEAD.format(most=most),
        *_totals(results),
        "",
        "## What falls back, by reason",
        "",
        *_reasons(results),
        "",
        "## By operator",
        "",
    ]
    lines += ["| operator | float32 | float16 | why |", "|---|---|---|---|"]
    for name, found in sorted(by_name.items()):
        cells = [_cell(found.get(d)) for d in DTYPES]
        why = next((t for r in found.values() for w in reversed(ORDER) if (t := r["reasons"].get(w))), "")
        lines.append(f"| `{name}` | {' | '.join(cells)} | {_plain(_short(why))} |")
    return "\n".join(lines) + "\n"


def _totals(results: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"| | {' | '.join(DTYPES)} |", "|---|---|---|"]
    counts = Counter((worst(r), r["dtype"]) for r in results)
    for outcome in ("passes", *(o for o in ORDER if o != "passes"), "empty"):
        if any(counts[outcome, d] for d in DTYPES):
            lines.append(f"| {_NAMES[outcome]} | {' | '.join(str(counts[outcome, d]) for d in DTYPES)} |")
    samples = Counter({d: sum(sum(r["counts"].values()) for r in results if r["dtype"] == d) for d in DTYPES})
    lines.append(f"| samples in all | {' | '.join(str(samples[d]) for d in DTYPES)} |")
    return lines


def _reasons(results: Sequence[dict[str, Any]]) -> list[str]:
    names: dict[str, list[str]] = {}
    for result in results:
        if worst(result) == "falls back" and result["dtype"] == "float32":
            names.setdefault(_short(result["reasons"]["falls back"]), []).append(result["name"])
    found = sorted(names.items(), key=lambda item: (-len(item[1]), item[0]))
    return ["| variants (float32) | what is not supported |", "|---|---|"] + [f"| {len(n)} | {_plain(t)} |" for t, n in found if len(n) > 1]


def _short(reason: str) -> str:
    """The operator that a warning names, or the whole reason."""
    found = re.match(r"'([^']+)' (op|reduction)\b", reason)
    return f"{found[1]} {found[2]}" if found else reason


def _cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    outcome, counts = worst(result), result["counts"]
    total = sum(n for what, n in counts.items() if what != "no code" or outcome != "passes")
    part = f" {counts[outcome]}/{total}" if counts.get(outcome, total) != total else ""
    return outcome + part


def _plain(text: str) -> str:
    return re.sub(r"([|<>*_`\[\]])", r"\\\1", text.replace("\\", "\\\\"))[:220]


_NAMES = {
    "passes": "**passes**: every sample runs as a KTIR program, with the result of eager PyTorch",
    "no code": "no code: the result is a part of the inputs or empty, there is nothing to compile",
    "falls back": "falls back: the result is right, but a part of at least one sample runs on the CPU",
    "untraced": "untraced: Dynamo makes no graph of at least one sample",
    "fails": "fails: an error",
    "wrong": "wrong: another result than eager PyTorch",
    "crashes": "crashes, or takes too long",
    "empty": "no sample that eager PyTorch runs",
}

_HEAD = """# Coverage of PyTorch's operators

PyTorch's operator database (`torch.testing._internal.common_methods_invocations.op_db`) lists operators, in variants, with sample
inputs. This table says what becomes of them under `torch.compile(backend="spyre")` with the KTIR executor as engine. It is written by
`python test/campaign/opinfo.py`, here with up to {most} samples per variant, spread over all that the database has.

An element is right if it is that of eager PyTorch within the tolerance that the database states for the variant, or else within the usual
one of `torch.testing`. A chain of float16 is computed in float32 here and rounded once, where eager PyTorch rounds after each step, and
sums of float32 are taken in another order: an element may also be that of eager PyTorch in the next wider type, rounded, within the same
tolerance; in float32 its distance from that may be 1.5 times the largest one that eager PyTorch has itself.

The outcome of a variant is that of its worst sample; `3/8` beside it says how many samples of all had it.
"""
