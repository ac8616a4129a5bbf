"""What the control run leaves: events in a legal order, clocks, tokens."""
