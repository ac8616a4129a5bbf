# The wheel has no type information; everything in it is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...

class Dialect:
    DIALECT_NAMESPACE: str
    _mlir_module: Any
    operations: list[Any]
    types: list[Any]
    attributes: list[Any]
    def __init_subclass__(cls, *, name: str) -> None: ...
    @classmethod
    def load(cls) -> None: ...
