"""Running packages on an engine, without torch: host arrays to sticks and back, launches, and the store that generated code loads from."""
