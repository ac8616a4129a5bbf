"""Commands that write pages, and pictures."""
