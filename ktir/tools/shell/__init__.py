"""Between shells and the tools: what shells are told about them, and a process from which they start at once."""
