"""Loop nests as plain data (`region`) to logical KTIR (`translate`). No torch."""
