"""What command-line drivers share: flags, files, tables, pictures, what is shown of a run."""
