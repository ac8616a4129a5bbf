"""The instruction emulator: control (once per program: hazards, tokens, cycles) apart from values (a replay on NumPy arrays)."""

from ktir.emulator.machine.machine import Machine, carrier_shape
from ktir.emulator.machine.program.faults import MachineFinding
from ktir.emulator.machine.reports.report import MachineReport

__all__ = ["Machine", "MachineFinding", "MachineReport", "carrier_shape"]
