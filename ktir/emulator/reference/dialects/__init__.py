"""Executors, one file per dialect."""
