"""What passes tell each other through `ktir.*` attributes: their types, readers and writers, and the faults found in them."""
