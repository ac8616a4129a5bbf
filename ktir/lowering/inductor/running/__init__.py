"""What stands around a compiled graph when it is called: fallbacks, faults, messages, and where they point in the user's source."""
