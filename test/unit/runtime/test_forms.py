"""Forms: valid while all of the memory is the same, shared, dropped with their memory, bounded, and never changed under a launch."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from ktir.layout import Layout
from ktir.runtime.memory.content import Content, digest
from ktir.runtime.memory.forms import Form, Forms

LAYOUT = Layout.rows(4, 64)


class Memory:
    """An array with a life of its own."""

    def __init__(self, value: float = 0) -> None:
        self.array = np.full((4, 64), value, np.float16)
        self.arranged = 0

    def take(self, forms: Forms, place: str = "", stamp: Any = None) -> Form:
        def arrange(form: Form) -> None:
            self.arranged += 1
            form.carrier[...] = self.array

        return forms.take(self, place, LAYOUT, Content(self.array, stamp), arrange)

    def read(self, forms: Forms, place: str = "", stamp: Any = None) -> np.ndarray:
        form = self.take(forms, place, stamp)
        forms.release([form])
        return form.carrier


@pytest.mark.parametrize("at", [(0, 0), (3, 63), (1, 17), (2, 32)])
def test_any_element_counts(at: tuple[int, int]) -> None:
    forms, memory = Forms(), Memory()
    memory.read(forms)
    memory.read(forms)
    assert memory.arranged == 1
    memory.array[at] = 1
    assert memory.read(forms)[at] == 1
    assert memory.arranged == 2


def test_the_largest_magnitude_is_of_the_content() -> None:
    forms, memory = Forms(), Memory(3)
    for value, largest in ((-7, 7), (5, 5), (1, 3), (np.nan, np.nan), (0, 3)):
        memory.array[3, 5] = value
        form = memory.take(forms)
        np.testing.assert_equal(form.largest(), largest)
        forms.release([form])


def test_strides_and_gaps() -> None:
    memory = np.zeros((64, 64), np.float16)
    for view in (memory, memory.T, memory[::2], memory[:, :40], memory[:, :3], memory[::-1], np.broadcast_to(memory[:1], (8, 64))):
        before = digest(view)
        memory[0, 1] += 1
        assert digest(view) != before or not np.shares_memory(view, memory[0, 1:2])
    column, before = memory[:, :1], digest(memory[:, :1])
    memory[5, 6] += 1
    assert digest(column) == before  # of a sparse view, gaps are not looked at
    memory[5, 0] += 1
    assert digest(column) != before
    assert digest(np.empty((0, 3), np.float16)) == digest(np.empty((3, 0), np.float16))


def test_bound() -> None:
    size = LAYOUT.entries * 64 * 4
    forms, memories = Forms(3 * size), [Memory(k) for k in range(5)]
    for memory in memories:
        memory.read(forms)
    assert (forms.bytes, len(forms)) == (3 * size, 3)
    for memory in memories[2:]:
        memory.read(forms)
    assert [m.arranged for m in memories] == [1] * 5  # the last ones used are there
    taken = [m.take(forms) for m in memories]  # what is being read stays, whatever the bound
    assert forms.bytes == 5 * size
    assert [f.carrier[0, 0] for f in taken] == [0, 1, 2, 3, 4]
    forms.release(taken)
    assert forms.bytes == 3 * size
    forms.set_limit(0)
    assert forms.bytes == 0


def test_gone_with_its_memory() -> None:
    forms, memory = Forms(), Memory()
    memory.read(forms)
    memory.read(forms, "elsewhere")
    assert len(forms) == 2
    del memory
    gc.collect()
    assert (len(forms), forms.bytes) == (0, 0)
    other = Memory(7)
    np.testing.assert_array_equal(other.read(forms), np.full((4, 64), 7, np.float32))


def test_what_a_launch_reads_stays_as_it_is() -> None:
    forms, memory = Forms(), Memory(1)
    first = memory.take(forms)
    memory.array[...] = 2
    second = memory.take(forms)
    assert (first.carrier[0, 0], second.carrier[0, 0]) == (1, 2)
    forms.release([first, second])
    assert len(forms) == 1
    assert memory.read(forms)[0, 0] == 2
    assert memory.arranged == 2


def test_an_error_leaves_no_form_that_is_half_arranged() -> None:
    forms, memory = Forms(), Memory(1)
    memory.read(forms)
    memory.array[...] = 2

    def broken(form: Form) -> None:
        form.carrier[0] = -1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        forms.take(memory, "", LAYOUT, Content(memory.array), broken)
    memory.array[...] = 1
    np.testing.assert_array_equal(memory.read(forms), np.ones((4, 64), np.float32))
    forms.set_limit(0)
    assert len(forms) == 0  # nobody is said to read it still


def test_stamps_save_the_look() -> None:
    forms, memory = Forms(), Memory()
    memory.read(forms, stamp=1)
    memory.array[0, 0] = 5
    assert memory.read(forms, stamp=1)[0, 0] == 0
    assert memory.read(forms, stamp=2)[0, 0] == 5
    memory.array[0, 0] = 6
    assert memory.read(forms)[0, 0] == 6
    assert memory.read(forms, stamp=2)[0, 0] == 6  # who looked at the content has seen more


def test_threads() -> None:
    """Readers of memories that change, live and die: each sees its own content."""
    forms = Forms(20 * LAYOUT.entries * 64 * 4)
    wrong: list[float] = []

    def work(seed: int) -> None:
        r = np.random.default_rng(seed)
        for _ in range(300):
            memory = Memory()
            for _ in range(3):
                value = float(r.integers(1000))
                memory.array[...] = value
                form = memory.take(forms)
                if (form.carrier != value).any():
                    wrong.append(value)
                forms.release([form])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not wrong
    assert forms.bytes == 0


OUTLIVED = """
import abc, sys
import numpy as np
from ktir.layout import Layout
from ktir.runtime.memory import forms
from ktir.runtime.memory.allocation import Allocation
from ktir.runtime.memory.card import card
from ktir.runtime.memory.content import Content

class Owner: pass

sys.kept = forms.shared, *sys.modules.values()  # so that they are emptied, those that were imported last first, and not just dropped
abc.owner, memory = Owner(), np.zeros((4, 64), np.float16)
forms.shared.release([forms.shared.take(abc.owner, "", Layout.rows(4, 64), Content(memory), lambda form: None)])
abc.allocation = Allocation(card(), 1 << 22)
print("done")
"""


def test_what_outlives_its_modules() -> None:
    """At its end the interpreter takes away what modules hold, and lets go of memories after that: nobody hears of an error."""
    ended = subprocess.run([sys.executable, "-c", OUTLIVED], capture_output=True, text=True, check=True, timeout=300)
    assert (ended.stdout, ended.stderr) == ("done\n", "")
