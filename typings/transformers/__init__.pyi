# The real package binds thousands of modules, half a minute of each check; models are called through plain names.
from typing import Any

def __getattr__(name: str) -> Any: ...
