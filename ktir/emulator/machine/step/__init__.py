"""The reference mode: a trace replayed word by word on an LX array."""
