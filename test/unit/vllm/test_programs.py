"""How steps of a server become calls of few programs; vLLM is not needed."""

import random

from ktir.vllm.programs import Programs, groups, sizes


def test_sizes_end_at_the_largest() -> None:
    assert sizes(8) == [2, 8]
    assert sizes(64, 16) == [16, 64]
    assert sizes(1) == [1]


def test_every_step_asks_for_a_program_that_was_compiled() -> None:
    for most, tokens, pages, page in [(4, 64, 8, 16), (3, 100, 7, 16), (1, 16, 1, 16), (16, 2048, 128, 16), (5, 8, 3, 64), (2, 1, 2, 16)]:
        programs = Programs(most, tokens, pages, page)
        ready = programs.all()
        assert len(ready) == len(set(ready))
        for length in range(1, pages * page + 1):
            for n in range(1, most + 1):
                found = programs.decode(n, length)
                assert found in ready
                assert found.sequences >= n
                assert found.pages * page >= length
            if min(length, tokens) > 1:
                new = random.Random(length).randint(2, min(length, tokens))
                found = programs.prefill(new, length)
                assert found in ready
                assert found.tokens >= new
                assert found.pages * page >= min(found.tokens, pages * page)


def test_programs_are_few() -> None:
    """With the one of the logits at most eight; lengths that take about as long share theirs, whatever a page is."""
    assert len(Programs(4, 64, 8, 16).all()) == 3
    assert len(Programs(16, 64, 8, 16).all()) == 4
    assert len(Programs(4, 64, 32, 16).all()) == 6
    for page in (16, 32, 64, 256):
        programs = Programs(4, 2048, 8192 // page, page)
        assert [n * page for n in programs.pages] == [n for n in (128, 512, 2048, 8192) if n >= page or n > 128]


def test_sequences_with_one_new_token_are_one_program() -> None:
    assert groups([1, 5, 1, 2]) == [[1], [3], [0, 2]]
    assert groups([3]) == [[0]]
    assert groups([1]) == [[0]]


def test_what_reads_blocks_of_others_runs_behind_them() -> None:
    """Whatever the order of the sequences is, and how many new tokens they have."""
    draw = random.Random(0)
    for _ in range(200):
        count = draw.randint(1, 6)
        lengths = [draw.choice([1, 1, 5]) for _ in range(count)]
        came = draw.sample(range(count), count)  # one of these reads of those before it
        writes = [{2 * i, 2 * i + 1} for i in range(count)]
        reads = [{draw.choice([2 * i, 2 * other]) for other in came[: came.index(i)]} for i in range(count)]
        found = groups(lengths, reads, writes)
        assert sorted(i for group in found for i in group) == list(range(count))
        assert all(len(group) == 1 or {lengths[i] for i in group} == {1} for group in found)
        when = {i: number for number, group in enumerate(found) for i in group}
        assert all(when[other] < when[i] for i in range(count) for other in range(count) if other != i and reads[i] & writes[other])
    assert groups([1, 17, 1], [{5, 6}, set(), {8}], [{7}, {5, 6}, {9}]) == [[1], [2], [0]]
    assert groups([1, 1, 17], [{5, 6}, {8}, {3}], [{7}, {9}, {4}]) == [[2], [0, 1]]
