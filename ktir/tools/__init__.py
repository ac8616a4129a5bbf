"""Command-line drivers. They handle arguments and files; the work is done elsewhere."""
