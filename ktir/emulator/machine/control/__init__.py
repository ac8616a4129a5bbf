"""The control run: words executed once per program, without values."""
