"""The words of an action against what it must do: one rule per kind of action. A rule yields (unit, word, message) for what differs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ktir.checking.stream import expected
from ktir.checking.stream.alignment import Aligned, Placed
from ktir.checking.stream.expressions import Expressions, Unreadable, of_rep
from ktir.checking.stream.footprint import Footprint, difference, of_descriptor
from ktir.isa.lane import lane_text
from ktir.isa.program import Kernel, Word
from ktir.isa.units import Unit

Fault = tuple[Unit, int, str]


class Rules:
    """Holds the words of one kernel against its actions."""

    def __init__(self, stream: Kernel, table: Expressions, corelets: int) -> None:
        self.stream, self.table, self.corelets = stream, table, corelets

    def faults(self, one: Aligned) -> Iterator[Fault]:
        """What differs between an action and its words."""
        match one.action:
            case expected.Transfer():
                return self._transfer(one.action, one.words)
            case expected.Fill():
                return self._fill(one.action, one.words[Unit.MNIL])
            case expected.Exchange():
                return self._exchange(one.action, one.words)
            case expected.Multiply():
                return self._multiply(one.action, one.words)
            case expected.Vector():
                return self._vector(one.action, one.words)
        raise AssertionError(one.action)

    def _walk(self, number: int, action: expected.Action, corelets: int, looked_up: int | None = None) -> Footprint:
        return of_descriptor(self.stream.descriptors[number], self.stream, action.trips, corelets, looked_up)

    # Transfers

    def _transfer(self, action: expected.Transfer, words: dict[Unit, list[Placed]]) -> Iterator[Fault]:
        unit = Unit.MNIL if action.loads else Unit.MNIS
        ((place, w),) = words[unit]
        gathers = action.positions is not None
        if w.op != "move" or None in (w["src"], w["dst"]) or (w["index"] is not None) != gathers:
            what = "with an index" if gathers else "without an index"
            yield unit, place, f"'{w.op}' stands for an op that needs 'move' between memory and LX, {what}"
            return
        outside, inside = ("src", "dst") if action.loads else ("dst", "src")
        memory = self._walk(w[outside], action, 1, w["dim"] if gathers else None)
        local = self._walk(w[inside], action, 1)
        dead = np.zeros(action.local.inner.size, bool)
        if not action.loads:
            dead |= action.memory.ever_live().max(0) == 0
        order = _order(action.local.inner, local.inner, dead)
        if order is None:
            yield (
                unit,
                place,
                f"'{w.op}' touches LX at {local.inner.size} entries that are not those of KTIR's tile of {action.local.inner.size}",
            )
            return
        left_out = np.setdiff1d(np.arange(action.local.inner.size), order)
        if not dead[left_out].all():
            yield unit, place, f"'{w.op}' leaves out entry {left_out[0]} of KTIR's tile"
        for name, found, wanted in ((outside, memory, action.memory), (inside, local, action.local)):
            text = difference(wanted.picked(order), found)
            if text:
                yield unit, place, f"'{w.op}': descriptor {w[name]} {text}"
        if action.positions is not None:
            if w["size"] != action.size:
                yield unit, place, f"'{w.op}' takes indices below {w['size']}, but KTIR below {action.size}"
            text = difference(action.positions, self._walk(w["index"], action, 1), lanes=1)
            if text:
                yield unit, place, f"'{w.op}': descriptor {w['index']} {text}"

    def _fill(self, action: expected.Fill, words: list[Placed]) -> Iterator[Fault]:
        ((place, w),) = words
        if w.op != "fill":
            yield Unit.MNIL, place, f"'{w.op}' stands for an op that needs 'fill'"
            return
        if w["value"] != action.bits:
            yield Unit.MNIL, place, f"'{w.op}' fills with {lane_text(w['value'])}, but KTIR with {lane_text(action.bits)}"
        local = self._walk(w["lx"], action, 1)
        order = _order(action.local.inner, local.inner)
        if order is None or order.size != action.local.inner.size:
            yield Unit.MNIL, place, f"'{w.op}' fills other entries than KTIR's tile has"
            return
        text = difference(action.local.picked(order), local)
        if text:
            yield Unit.MNIL, place, f"'{w.op}': descriptor {w['lx']} {text}"

    def _exchange(self, action: expected.Exchange, words: dict[Unit, list[Placed]]) -> Iterator[Fault]:
        for unit, name, ring, wanted in ((Unit.MNIS, "src", "dst", action.sent), (Unit.MNIL, "dst", "src", action.received)):
            ((place, w),) = words[unit]
            if w.op != "move" or w[ring] is not None:
                yield unit, place, f"'{w.op}' stands for an op that needs 'move' over the ring"
                continue
            if self.stream.groups[w["group"]] != list(action.senders):
                yield unit, place, f"'{w.op}' names group {w['group']}, but in KTIR cores receive from {list(action.senders)}"
            text = difference(wanted, self._walk(w[name], action, 1))
            if text:
                yield unit, place, f"'{w.op}': descriptor {w[name]} {text}"

    # PT

    def _multiply(self, action: expected.Multiply, words: dict[Unit, list[Placed]]) -> Iterator[Fault]:
        streams = {w["fifo"]: (place, w) for place, w in words[Unit.LXLU] if w.op == "push"}
        array = {w.op: (place, w) for place, w in words[Unit.PT]}
        place = words[Unit.LXLU][0][0]
        if set(streams) != {"W", "A"} or sum(w.op != "par" for _, w in words[Unit.LXLU]) != 2:
            yield Unit.LXLU, place, "a block of a contraction needs one stream into W and one into A"
            return
        if [w.op for _, w in words[Unit.PT]] != ["ldw", "mm"]:
            yield Unit.PT, words[Unit.PT][0][0], "a block of a contraction needs 'ldw' and then 'mm'"
            return
        for fifo, wanted in (("W", action.weights), ("A", action.activations)):
            place, w = streams[fifo]
            if w["transpose"] != (fifo == "W" and action.transposed):
                yield Unit.LXLU, place, f"'{w.op}' gives PT a block that is{'' if action.transposed else ' not'} transposed in KTIR"
            text = difference(wanted, self._walk(w["lx"], action, self.corelets))
            if text:
                yield Unit.LXLU, place, f"'{w.op}': descriptor {w['lx']} {text}"
        for place, w in array.values():
            if w["half"] != action.activations.half:
                yield Unit.PT, place, f"'{w.op}' multiplies {w['half']}, but KTIR {action.activations.half}"
        place, w = array["mm"]
        if w["rows"] != action.rows:
            yield Unit.PT, place, f"'mm' multiplies {w['rows']} rows, but KTIR {action.rows} per corelet"

    # SFP

    def _vector(self, action: expected.Vector, words: dict[Unit, list[Placed]]) -> Iterator[Fault]:
        place, rep = words[Unit.SFP][0]
        if rep.op != "rep":
            yield Unit.SFP, place, f"'{rep.op}' stands for an op that needs 'rep'"
            return
        if (rep["groups"], rep["sticks"]) != (action.rows, action.sticks):
            shape = f"{rep['groups']} groups of {rep['sticks']} sticks, but KTIR {action.rows} of {action.sticks}"
            yield Unit.SFP, place, f"'rep' computes {shape}"
            return
        body = [w for _, w in words[Unit.SFP][1:]]
        faults = list(self._drains(action, words.get(Unit.PT, [])))
        entries, found = self._inputs(action, words.get(Unit.LXLU, []), body, rep["start"])
        faults += found
        if faults:
            yield from faults
            return
        try:
            pushed = of_rep(rep, body, self.table, lambda w: entries[w["fifo"]])
        except Unreadable as e:
            yield Unit.SFP, place, str(e)
            return
        yield from self._result(action, place, pushed, words[Unit.LXSU])

    def _drains(self, action: expected.Vector, words: list[Placed]) -> Iterator[Fault]:
        for place, w in words:
            if w.op != "pto":
                yield Unit.PT, place, f"KTIR reads the sums of {action.rows} rows here, which needs 'pto'"

    def _inputs(self, action: expected.Vector, words: list[Placed], body: list[Word], start: int) -> tuple[dict[str, int], list[Fault]]:
        """FIFO -> the expression of what comes through it, and what is wrong with the streams."""
        sums = next((o.expression for o in action.operands if o.each is None), None)
        entries = {} if sums is None else {"P": sums}
        faults: list[Fault] = []
        once_per_row: dict[str, bool] = {}
        for i, w in enumerate(body):
            if w.op == "vin":
                if w["fifo"] in once_per_row:
                    faults.append((Unit.LXLU, words[0][0] if words else 0, f"the body takes two entries of FIFO {w['fifo']}"))
                once_per_row[w["fifo"]] = i < start
        for place, w in words:
            if w.op == "par":
                continue
            if w.op != "push" or w["transpose"] or w["fifo"] in entries or w["fifo"] not in once_per_row:
                faults.append((Unit.LXLU, place, f"'{w.op}' into FIFO {w['fifo']} is not what the body takes"))
                continue
            walk = self._walk(w["lx"], action, self.corelets)
            once = once_per_row[w["fifo"]]
            texts = []
            for o in action.operands:
                wanted = o.once if once else o.each
                text = difference(wanted, walk) if wanted is not None else None
                if wanted is not None and text is None:
                    entries[w["fifo"]] = o.expression
                    break
                texts.append(text or ("is read once per row" if once else "is read from PT"))
            else:
                faults.append(
                    (Unit.LXLU, place, f"'push': descriptor {w['lx']} is no operand of the op: {texts[min(len(entries), len(texts) - 1)]}")
                )
        for fifo in once_per_row.keys() - entries.keys() if not faults else ():
            faults.append((Unit.LXLU, words[0][0] if words else 0, f"nothing is sent into FIFO {fifo}, of which the body takes entries"))
        return entries, faults

    def _result(self, action: expected.Vector, place: int, pushed: dict[str, tuple[str, int]], words: list[Placed]) -> Iterator[Fault]:
        at, pull = words[0]
        if pull.op != "pull" or len(words) != 1:
            yield Unit.LXSU, at, f"'{pull.op}' stands for an op that needs 'pull'"
            return
        if pushed.keys() != {pull["fifo"]}:
            yield Unit.LXSU, at, f"'pull' takes FIFO {pull['fifo']}, but the body pushes into {', '.join(sorted(pushed)) or 'none'}"
            return
        part, value = pushed[pull["fifo"]]
        if (part == "end") != action.reduces and action.sticks > 1:
            yield Unit.SFP, place, f"the body pushes its result at {part}, but KTIR {'reduces' if action.reduces else 'does not reduce'}"
        elif value != action.expression:
            yield Unit.SFP, place, f"the body computes {self.table.differing(value, action.expression)}"
        text = difference(action.result, self._walk(pull["lx"], action, self.corelets))
        if text:
            yield Unit.LXSU, at, f"'pull': descriptor {pull['lx']} {text}"


def _order(expected_inner: np.ndarray, found_inner: np.ndarray, dead: np.ndarray | None = None) -> np.ndarray | None:
    """Which entry of the first walk each of the second one is; None if one is not there, or twice. A `dead` entry of the first walk, one
    that does not matter, may lie where another one does, which then is the one."""
    if np.array_equal(expected_inner, found_inner):
        return np.arange(expected_inner.size)
    order = np.lexsort((np.zeros(expected_inner.size, bool) if dead is None else dead, expected_inner))
    at = np.searchsorted(expected_inner[order], found_inner)
    if (at >= order.size).any() or (expected_inner[order][at] != found_inner).any() or np.unique(found_inner).size < found_inner.size:
        return None
    return order[at]
