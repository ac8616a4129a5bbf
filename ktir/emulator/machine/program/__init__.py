"""A program made ready to run: resolved words, bodies of REP, and the faults that running finds."""
