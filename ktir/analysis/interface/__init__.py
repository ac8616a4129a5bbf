"""What a function wants to be called with, as its views, loads and stores say it."""
