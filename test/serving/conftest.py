# pyright: reportMissingImports=false
"""Engines run in the process of the tests, on one thread, on the chip alone, and ask no network."""

import os

os.environ |= {
    "KTIR_FALLBACK": "error",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
}

from every import pytest_addoption, pytest_collection_modifyitems, pytest_report_header
from quiet import quiet

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_report_header"]

import vllm  # noqa: F401  its platform lets the processors of transformers be imported, whichever file of tests comes first


def pytest_collection_finish() -> None:
    quiet()
