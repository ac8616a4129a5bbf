"""The page on coverage, made from the results of a run over the operator database."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

ORDER = ("no code", "chip", "copied", "executor", "PyTorch", "untraced", "fails", "wrong", "crashes")
"""Outcomes; each counts more than those before it."""
BAD = ("fails", "wrong", "crashes")
DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")


def worst(result: dict[str, Any]) -> str:
    """The worst outcome among a variant's samples; `empty` where eager PyTorch had no result for any."""
    return max(result["counts"], key=ORDER.index, default="empty")


def page(results: Sequence[dict[str, Any]], engine: str = "spyre") -> str:
    """The page as Markdown."""
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for result in results:
        by_name.setdefault(result["name"], {})[result["dtype"]] = result
    numbers = Counter(r["samples"] or "all" for r in results)
    how = ", ".join(f"up to {most} samples of {n} pairs of variant and type" for most, n in sorted(numbers.items(), key=str))
    lines = [_HEAD.format(how=how, engine=ENGINES[engine]), *_totals(results), "", "## What does not run on the chip, by reason", ""]
    lines += [*_reasons(results), "", "## By operator", "", f"| operator | {' | '.join(DTYPES)} | why |", "|---" * (len(DTYPES) + 2) + "|"]
    for name, found in sorted(by_name.items()):
        cells = [_cell(found.get(d)) for d in DTYPES]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {_plain(_short(_why(found.values())))} |")
    return "\n".join(lines) + "\n"


def updated(text: str, results: Sequence[dict[str, Any]]) -> str:
    """A page with the cells of some variants and types anew, and how many there are of each outcome; of a type that is there as a whole how
    many samples, too. Raises ValueError for a variant, or a pair of variant and type, that the page has not."""
    lines = text.split("\n")
    at = {line.split("|")[1].strip().strip("`"): i for i, line in enumerate(lines) if line.startswith("| ")}
    for result in results:
        if result["name"] not in at:
            raise ValueError(f"the page has no variant {result['name']}")
        cells, column = lines[at[result["name"]]].split(" | "), 1 + DTYPES.index(result["dtype"])
        before = next((o for o in (*ORDER, "empty") if cells[column].startswith(o)), None)
        if before is None:
            raise ValueError(f"the page has no {result['dtype']} of {result['name']}")
        cells[column] = _cell(result)
        if all(c.split(" ")[0] in ("", "no", "chip") for c in cells[1 : 1 + len(DTYPES)]):
            cells[-1] = " |"
        elif why := _why([result]):
            cells[-1] = f"{_plain(_short(why))} |"
        lines[at[result["name"]]] = " | ".join(cells)
        for outcome, more in ((before, -1), (worst(result), 1)):
            if _NAMES[outcome] not in at:
                raise ValueError(f"the page counts no outcome '{outcome}'")
            counts = lines[at[_NAMES[outcome]]].split(" | ")
            last, end = counts[-1].removesuffix(" |"), counts[-1].endswith(" |")
            counts[-1] = last
            counts[column] = str(int(counts[column]) + more)
            lines[at[_NAMES[outcome]]] = " | ".join(counts) + " |" * end
    rows = [line.split(" | ") for line in lines if line.startswith("| `")]
    totals, samples = lines[at[_SAMPLES]].removesuffix(" |").split(" | "), _samples(results)
    for column, dtype in enumerate(DTYPES, 1):
        if sum(r["dtype"] == dtype for r in results) == sum(bool(row[column]) for row in rows):
            totals[column] = str(samples[dtype])
    lines[at[_SAMPLES]] = " | ".join(totals) + " |"
    return "\n".join(lines)


def _samples(results: Sequence[dict[str, Any]]) -> Counter[str]:
    """How many there are of each type."""
    return Counter({d: sum(sum(r["counts"].values()) for r in results if r["dtype"] == d) for d in DTYPES})


def _why(results: Iterable[dict[str, Any]]) -> str:
    """The first reason of the worst outcome of the first result that has one."""
    return next((t for r in results for w in reversed(ORDER) if (t := r["reasons"].get(w))), "")


def _totals(results: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"| | {' | '.join(DTYPES)} |", "|---" * (len(DTYPES) + 1) + "|"]
    counts = Counter((worst(r), r["dtype"]) for r in results)
    for outcome in (*ORDER, "empty"):
        if any(counts[outcome, d] for d in DTYPES) or outcome in ("wrong", "crashes"):
            lines.append(f"| {_NAMES[outcome]} | {' | '.join(str(counts[outcome, d]) for d in DTYPES)} |")
    samples = _samples(results)
    lines.append(f"| {_SAMPLES} | {' | '.join(str(samples[d]) for d in DTYPES)} |")
    return lines


def _reasons(results: Sequence[dict[str, Any]]) -> list[str]:
    names: dict[str, set[str]] = {}
    for result in results:
        for outcome in ("executor", "PyTorch"):
            if reason := result["reasons"].get(outcome):
                names.setdefault(_class(reason), set()).add(f"{result['name']} {result['dtype']}")
    found = sorted(names.items(), key=lambda item: (-len(item[1]), item[0]))
    return ["| variants and types | what is not supported |", "|---|---|"] + [f"| {len(n)} | {_plain(t)} |" for t, n in found if len(n) > 1]


def _class(reason: str) -> str:
    """A reason without its numbers and names of nodes."""
    return re.sub(r"\[[\d, ]*\]|\d+", "N", re.sub(r" \([^()]*\)", "", _short(reason)))


def _short(reason: str) -> str:
    """The operator that a warning names, or the whole reason."""
    found = re.match(r"'([^']+)' (op|reduction)\b", reason)
    return f"{found[1]} {found[2]}" if found else reason


def _cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    outcome, counts = worst(result), result["counts"]
    total = sum(n for what, n in counts.items() if what != "no code" or outcome != "chip")
    part = f" {counts[outcome]}/{total}" if counts.get(outcome, total) != total else ""
    return outcome + part


def _plain(text: str) -> str:
    return re.sub(r"([|<>*_`\[\]])", r"\\\1", text.replace("\\", "\\\\"))[:220]


_SAMPLES = "samples in all"
_NAMES = {
    "no code": "no code: the result is a part of the inputs or empty, there is nothing to compile",
    "chip": "**chip**: every sample runs wholly on the emulated chip",
    "copied": "copied: uncompiled on the device, at least one sample is copies, new tensors or random numbers, which have no programs",
    "executor": "executor: right, but a program of at least one sample runs on the KTIR executor",
    "PyTorch": "PyTorch: right, but PyTorch runs an operator of at least one sample",
    "untraced": "untraced: Dynamo makes no graph of at least one sample",
    "fails": "fails: an error",
    "wrong": "wrong: another result than eager PyTorch",
    "crashes": "crashes, or takes too long",
    "empty": "no sample that eager PyTorch runs",
}
ENGINES = {"spyre": "the emulated chip, the default engine", "ktir": "the KTIR executor as engine"}
"""Those that the page is about, and how it names them."""

_HEAD = """# Coverage of PyTorch's operators

PyTorch's operator database (`torch.testing._internal.common_methods_invocations.op_db`) lists operators, in variants, with sample
inputs. This table says what becomes of them under `torch.compile(backend="spyre")` with {engine}. It is written by
`python test/campaign/opinfo.py`, here from {how}, spread over all that the database has. A blank is a pair that PyTorch does not have, or
that was not run.

An element is right if it is that of eager PyTorch within the tolerance that the database states for the variant, or else within the usual
one of `torch.testing`; integers and bool are right if they are equal. An element of a float may also be that of eager PyTorch in the next
wider type, rounded, within the same tolerance; its distance from that may be 1.5 times the largest one that eager PyTorch has itself.

The outcome of a variant is that of its worst sample; `3/8` beside it says how many samples of all had it. Where programs ran is counted
at their launches.
"""
