"""The instruction emulator: control (once per program: hazards, tokens, cycles) apart from values (a replay on NumPy arrays)."""
