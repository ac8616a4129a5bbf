"""The tape: a trace as NumPy calls on values, which a launch replays."""
