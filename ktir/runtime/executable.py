"""A loaded package, ready to be launched on the instruction emulator."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ktir.diagnostics import KtirError, holding
from ktir.emulator.machine import Machine
from ktir.emulator.machine.kept import Kept
from ktir.emulator.machine.machine import Mode
from ktir.isa.binary.encoding import encode
from ktir.package import HostTensor, LaunchArgument, Package, content_hash, read
from ktir.package.manifest import PROGRAM
from ktir.runtime import metrics, notices
from ktir.runtime.device import DeviceTensor
from ktir.runtime.host import Host
from ktir.runtime.jobplan import JobPlan
from ktir.runtime.memory.allocation import Allocation, DeviceForm
from ktir.runtime.memory.card import Card
from ktir.runtime.memory.forms import Form, shared
from ktir.runtime.memory.hardware import nothing
from ktir.runtime.memory.slot import Slot
from ktir.runtime.memory.transfer import as_array
from ktir.runtime.memory.view import View
from ktir.runtime.monitor import writer as monitor
from ktir.runtime.prepared import Prepared
from ktir.runtime.time.steps import Step
from ktir.target import DL16, STICK_BYTES, Target


@dataclass(frozen=True)
class Launch:
    """One launch, as `recorded` sees it: the program's name and the machine that ran it (its `report` has the cycles)."""

    name: str
    machine: Machine


_MOST_PREPARED = 64
_recorder: ContextVar[list[Launch] | None] = ContextVar("ktir_launches", default=None)


def recorded() -> AbstractContextManager[list[Launch]]:
    """Collect the launches of a block, in order."""
    return holding(_recorder, [])


_recorders: list[list[Launch]] = []


@contextmanager
def recorded_everywhere() -> Iterator[list[Launch]]:
    """Collect the launches of all threads of the process while the block runs."""
    launches: list[Launch] = []
    _recorders.append(launches)
    try:
        yield launches
    finally:
        _recorders[:] = [each for each in _recorders if each is not launches]


_LOSS = (
    "'{}' computes {} as DLFloat16, as the target says: 1 sign bit, 6 of exponent, 9 of fraction. Numbers up to 2^-31 are 0, those beyond "
    "8573157376 and infinities are NaN; float16 loses a bit of its fraction, bfloat16 the rest of its range"
)


class Executable:
    """A program with the transfers of its launch spec, on the machine that it was compiled for unless a `target` is given.

    Loading verifies the program and runs its control plane once; a launch moves values only. What a launch only reads is arranged once for
    all programs of the process and kept while it has the same content (`ktir.runtime.memory.forms`).
    """

    def __init__(self, package: Package, target: Target | None = None, kept: Kept | None = None, *, encoded: bytes | None = None) -> None:
        """`kept`: what a machine has found out about the package before, on its own target. encoded: the bytes that the program was read
        from, where it is as it was read; see `load`.
        """
        self.spec = package.launch_spec
        figures, known = (package.target, kept) if target is None else (target, None)
        self.machine = Machine(package.program, figures, known, wellformed=encoded is not None)
        self._encoded = encoded
        self.slots = [Slot(a, self._wanted(a)) for a in self.spec.args]
        self.layouts = [s.layout for s in self.slots]
        self.lock = Lock()
        self.hosts = len(self.spec.hosts) or 1 + max((s.host for s in self.slots), default=-1)
        self.written = sorted({s.host for s in self.slots if s.host >= 0 and s.argument.role != "input"})
        """Numbers of the tensors that a launch writes."""
        self._views: dict[int, View] = {}
        """By number of a tensor, the last view of one on a card that was as the program expects it."""
        self._plans: WeakKeyDictionary[Card, JobPlan] = WeakKeyDictionary()
        self._prepared: dict[Hashable, Prepared] = {}
        if halves := sorted({a.dtype for a in self.spec.args if a.layout.device_dtype == DL16.published}):
            said = KtirError(_LOSS.format(self.spec.kernel_name, " and ".join(halves)))
            notices.warn_once(content_hash(package.to_files()), "dl16", said)
        figures = self.machine.target
        ns = self.machine.report.cycles / figures.clock_ghz
        self.step = Step("Compute", 0, ns, self.spec.kernel_name, figures.host_launch_us * 1e3, self.machine)

    @classmethod
    def load(cls, files: Mapping[str, bytes], target: Target | None = None, kept: Kept | None = None) -> Executable:
        """Of the files of a package. Reading checks that the program is well-formed; nobody can change it before it is launched, so
        nothing asks again, and a card gets the bytes that were read. Raises PackageError.
        """
        return cls(read(files), target, kept, encoded=files[PROGRAM])

    def _wanted(self, argument: LaunchArgument) -> HostTensor | None:
        """What the program says of the tensor of an argument; None where it says nothing."""
        return self.spec.hosts[argument.host.arg] if self.spec.hosts and argument.host is not None else None

    @property
    def arranged(self) -> int:
        """Arguments on the host that the launches so far had to arrange."""
        return sum(s.arranged for s in self.slots)

    def __call__(self, *tensors: Any, mode: Mode = "tape", stamps: Sequence[object | None] = ()) -> None:
        """Launch on tensors in the order of the source function's arguments; outputs are written in place.

        Takes NumPy arrays, of any strides, or CPU tensors: of the shapes and types that the launch spec declares; and `DeviceTensor`s,
        which give what the program reads in the form that it wants, and adopt what it writes. stamps: per tensor what is equal only while
        nobody has written it, or None. Raises KtirError for a wrong number, type or shape, and OutOfRange for values for which the program
        is not proved. A launch that fails has written nothing.
        """
        if len(tensors) != self.hosts:
            raise KtirError(f"'{self.spec.kernel_name}' expects {self.hosts} arguments, but got {len(tensors)}")
        card = self._card(tensors)
        with self.lock, nullcontext() if card is None else card.compute:  # a machine runs one launch at a time, and so does a card
            taken: list[Form] = []
            try:
                self._launch(card, tensors, stamps or [None] * self.hosts, mode, taken)
            finally:
                if taken:
                    shared.release(taken)
        if card is None:
            monitor.own.open(0).append(self.step)  # tensors of the host: there is a chip, and no copies
        self.launched()

    def prepared(self, tensors: Sequence[Any], made: Sequence[int] = ()) -> Prepared | None:
        """What launches on tensors that lie as these. None where not all are on a card, each as the program expects it from the beginning
        of its allocation on. made: numbers of those that are made for each launch, which nobody has seen before.
        """
        card = self._card(tensors)
        if card is None or len(tensors) != self.hosts or not all(type(t) is DeviceTensor and not t.view.offset for t in tensors):
            return None
        key = card, tuple(made), *((t.view, t.allocation.nbytes) for t in tensors)
        if key not in self._prepared and all(self._operand(s, tensors[s.host], None) is tensors[s.host] for s in self.slots if s.host >= 0):
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            self._prepared[key] = Prepared(self, card, tensors, made)
        return self._prepared.get(key)

    def launched(self) -> None:
        """A launch has ended without an error."""
        metrics.count_chip()
        here = _recorder.get()
        if here is not None or _recorders:
            for launches in ([] if here is None else [here]) + _recorders:
                launches.append(Launch(self.spec.kernel_name, self.machine))

    def _card(self, tensors: Sequence[Any]) -> Card | None:
        """The card of those that are on one. Raises KtirError for several."""
        card = None
        for tensor in tensors:
            if type(tensor) is DeviceTensor and (own := tensor.allocation.card) is not card:
                if card is not None:
                    both = sorted((card.index, own.index))
                    raise KtirError(f"'{self.spec.kernel_name}' expects tensors of one card, but got some of {both}")
                card = own
        return card

    def _bytes(self) -> bytes:
        return encode(self.machine.program) if self._encoded is None else self._encoded

    def plan(self, card: Card) -> JobPlan:
        """The program on a card, prepared once."""
        found = self._plans.get(card)
        if found is None:
            found = self._plans[card] = JobPlan(card, self.spec.kernel_name, self.slots, self._bytes)
        return found

    def _launch(self, card: Card | None, tensors: Sequence[Any], stamps: Sequence[object | None], mode: Mode, taken: list[Form]) -> None:
        """The launch itself; adds the forms of the host that it reads to `taken`."""
        operands: dict[int, Host | DeviceTensor] = {}
        written: list[tuple[Slot, Host | DeviceTensor, np.ndarray]] = []
        carriers: list[np.ndarray | None] = []
        addresses: list[int | None] = [None] * len(self.slots)
        bounds: dict[int, Callable[[], float]] = {}
        for i, slot in enumerate(self.slots):
            if slot.host < 0:
                carriers.append(slot.iota)  # None of a pool: the machine's own
                continue
            operand = operands.get(slot.host)
            if operand is None:
                operand = operands[slot.host] = self._operand(slot, tensors[slot.host], stamps[slot.host])
            if slot.reads:
                form = operand.read(slot, taken)
                carriers.append(form.carrier)
                bounds[i] = form.largest
                if isinstance(form, DeviceForm):
                    addresses[i] = form.address
            else:
                carrier = operand.open(slot)
                written.append((slot, operand, carrier))
                carriers.append(carrier)
        if card is not None:
            carriers = self._bound(self.plan(card), operands, carriers, addresses)
        if card is None or card.computes:
            self.machine.launch(carriers, mode, bounds)
        else:
            nothing([carrier for *_, carrier in written])
            notices.warn_once("card", "null", KtirError("programs are not computed, what they write is 0: FLEX_COMPUTE is NULL"))
        if card is not None:
            card.run(self.step)
        for slot, operand, carrier in written:
            operand.close(slot, carrier)
            if card is not None and isinstance(operand, Host):
                card.record("D2H", slot.layout.sticks * STICK_BYTES, wait=True)
        for number in self.written:
            operands[number].finish(tensors[number])

    def _bound(
        self,
        plan: JobPlan,
        operands: Mapping[int, Host | DeviceTensor],
        carriers: list[np.ndarray | None],
        addresses: list[int | None],
    ) -> list[np.ndarray | None]:
        """The carriers of a launch on a card, at the addresses that the program finds there. addresses: of what it only reads there."""
        read = set(addresses)
        apart: set[Allocation] = set()
        for i, slot in enumerate(self.slots):
            if addresses[i] is not None or slot.host < 0:
                continue
            operand = operands[slot.host]
            if isinstance(operand, Host):
                if slot.argument.role != "output":
                    plan.card.record("H2D", slot.layout.sticks * STICK_BYTES)
            elif operand.allocation not in apart:  # else it is written twice, one after the other
                apart.add(operand.allocation)
                addresses[i] = operand.binding(slot).address(operand.allocation, read)
        return plan.carriers([plan.own(i) if a is None else a for i, a in enumerate(addresses)], carriers)

    def _operand(self, slot: Slot, tensor: Any, stamp: object | None) -> Host | DeviceTensor:
        """A tensor as what launches deal with."""
        on_card = type(tensor) is DeviceTensor
        if on_card and tensor.view is self._views.get(slot.host):
            return tensor
        wanted = self._wanted(slot.argument)
        if on_card:
            lying = tensor.lying_as(wanted, slot.argument.name)
            if lying is tensor:
                self._views[slot.host] = tensor.view
            return lying
        element = slot.layout.dtype if wanted is None else wanted.element
        return Host(tensor, as_array(tensor, slot.argument.name, element), wanted, slot.argument.name, stamp)
