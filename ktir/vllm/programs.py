"""Which programs a server needs, and how one step of vLLM becomes calls of them. Knows nothing of vLLM.

A step has any number of sequences with any number of new tokens. All sequences with one new token are one program, and every other
sequence is one, unless one of them reads what another one writes; how many sequences, tokens and pages a program takes is rounded up to
one of few sizes, so that all of them can be compiled before the first request.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

LEAST_TOKENS = 16
"""Smallest size of a chunk of a prompt."""
LEAST_SEQUENCES = 4
"""Smallest number of sequences that decode; one alone takes about as long as four."""
LEAST_LENGTH = 128
"""Smallest number of positions that a program looks back on; fewer take about as long, and would be more programs."""


@dataclass(frozen=True, order=True)
class Shape:
    """Of one program."""

    sequences: int
    tokens: int
    """New ones of each sequence."""
    pages: int
    """Of the cache, of each sequence."""


def sizes(most: int, least: int = 1) -> list[int]:
    """`most`, a quarter of it, and so on, ascending, none below `least`; a program that is not full wastes at most three quarters."""
    found = [most]
    while found[-1] // 4 >= least:
        found.append(-(-found[-1] // 4))
    return found[::-1]


def fitting(allowed: Sequence[int], size: int) -> int:
    """The smallest of the ascending sizes that is not below `size`."""
    return next(a for a in allowed if a >= size)


class Programs:
    """All programs of an engine."""

    def __init__(self, most_sequences: int, most_tokens: int, most_pages: int, page: int) -> None:
        """`page` is the number of tokens of a page, `most_tokens` those of one step."""
        self.sequences, self.tokens = sizes(most_sequences, LEAST_SEQUENCES), sizes(most_tokens, LEAST_TOKENS)
        self.pages = sizes(most_pages, -(-LEAST_LENGTH // page))
        self.page = page

    def decode(self, sequences: int, length: int) -> Shape:
        """For sequences of at most `length` tokens with one new token each."""
        return Shape(fitting(self.sequences, sequences), 1, self._pages(length))

    def prefill(self, tokens: int, length: int) -> Shape:
        """For `tokens` new ones at the end of one sequence of `length`; never fewer pages than hold the tokens of the program."""
        size = fitting(self.tokens, tokens)
        return Shape(1, size, self._pages(min(max(length, size), self.pages[-1] * self.page)))

    def _pages(self, length: int) -> int:
        return fitting(self.pages, -(-length // self.page))

    def all(self) -> list[Shape]:
        """Every shape that a step can ask for, the largest first."""
        lengths = [p * self.page for p in self.pages]
        decode = {self.decode(n, length) for n in self.sequences for length in lengths}
        least = [2, *(n + 1 for n in self.tokens[:-1])]  # the fewest tokens that come to each size
        prefill = {self.prefill(n, length) for n in least for length in lengths if n <= min(length, self.tokens[-1])}
        return sorted(decode | prefill, key=lambda s: (s.sequences * s.tokens, s), reverse=True)


def groups(lengths: Sequence[int], reads: Sequence[Set[int]] = (), writes: Sequence[Set[int]] = ()) -> list[list[int]]:
    """Numbers of the sequences of each program, given how many new tokens each has, in the order in which they run.

    `reads` are blocks of what is before the new tokens of a sequence, `writes` those of its new tokens: of sequences that begin alike and
    come together one writes what the others read.
    """
    waves = _waves(reads, writes) if reads else [0] * len(lengths)
    found = []
    for wave in sorted(set(waves)):
        members = [i for i, own in enumerate(waves) if own == wave]
        found += [[i] for i in members if lengths[i] > 1]
        if single := [i for i in members if lengths[i] == 1]:
            found.append(single)
    return found


def _waves(reads: Sequence[Set[int]], writes: Sequence[Set[int]]) -> list[int]:
    """Of each sequence how many have to run before it, one after the other."""
    writer = {block: i for i, blocks in enumerate(writes) for block in blocks}
    before = [{writer[block] for block in blocks & writer.keys()} - {i} for i, blocks in enumerate(reads)]
    waves = [0] * len(reads)
    for _ in reads:
        waves = [max((waves[i] + 1 for i in others), default=0) for others in before]
    return waves
