"""The instruction emulator: control (once per program: hazards, tokens, cycles) apart from values (a replay on NumPy arrays)."""

from .faults import MachineFinding
from .machine import Machine, carrier_shape
from .report import MachineReport

__all__ = ["Machine", "MachineFinding", "MachineReport", "carrier_shape"]
