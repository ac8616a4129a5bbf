"""Steps of cards, and when they are done: a clock of streams and engines, traces."""
