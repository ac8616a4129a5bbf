"""YAML with places: every value knows its line, so that what is wrong is refused where it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ktir.diagnostics import KtirError

try:
    import yaml
except ImportError:
    raise KtirError("test configurations need the package 'pyyaml': pip install 'ktir[suites]'") from None

T = TypeVar("T")
_DEEPEST = 8
_KINDS = {"scalar": "a scalar", "sequence": "a list", "mapping": "a mapping"}


@dataclass(frozen=True)
class Value:
    """A value of a file; `name` is how messages call it: `files[0].tests[1].mode`."""

    node: Any
    file: str
    name: str

    @property
    def place(self) -> str:
        """Where it stands."""
        return _place(self.file, self.node.start_mark)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return self.node.id == "sequence"

    def error(self, text: str) -> KtirError:
        """The error that this value `text`."""
        return KtirError(f"'{self.name}' {text}", self.place)

    def _expect(self, kind: str) -> Any:
        if not self.node.tag.startswith("tag:yaml.org,2002:") or "python" in self.node.tag:
            raise self.error(f"has the tag '{self.node.tag}', but takes none")
        if self.node.id != kind:
            raise self.error(f"expects {_KINDS[kind]}, but got {self._shown()}")
        return self.node.value

    def _shown(self) -> str:
        return repr(self.node.value) if self.node.id == "scalar" else _KINDS[self.node.id]

    def fields(self, required: Sequence[str] = (), optional: Sequence[str] = ()) -> dict[str, Value]:
        """The values of a mapping that has these fields and no others."""
        found = self.pairs()
        known = (*required, *optional)
        for key, _ in self.node.value:
            if key.value not in known:
                at = _place(self.file, key.start_mark)
                raise KtirError(f"'{self.name or self.file}' has no field '{key.value}'; it has {', '.join(known)}", at)
        for name in required:
            if name not in found:
                raise self.error(f"needs the field '{name}'")
        return found

    def pairs(self) -> dict[str, Value]:
        """The values of a mapping of any names."""
        found: dict[str, Value] = {}
        for key, node in self._expect("mapping"):
            at = Value(key, self.file, f"{self.name}: a name")
            name = at.text()
            if name in found:
                raise KtirError(f"'{self.name}' has the field '{name}' twice", at.place)
            found[name] = Value(node, self.file, f"{self.name}.{name}" if self.name else name)
        return found

    def items(self) -> list[Value]:
        """The values of a list."""
        return [Value(node, self.file, f"{self.name}[{k}]") for k, node in enumerate(self._expect("sequence"))]

    def each(self, read: Callable[[Value], T]) -> tuple[T, ...]:
        """What `read` makes of the values of a list."""
        return tuple(read(item) for item in self.items())

    def text(self) -> str:
        """A text that is not empty."""
        text = self._expect("scalar")
        if not text or self.node.tag != "tag:yaml.org,2002:str":
            raise self.error(f"expects a text, but got {text!r}")
        return text

    def flag(self) -> bool:
        """true or false."""
        value = self.scalar()
        if not isinstance(value, bool):
            raise self.error(f"expects true or false, but got {self._shown()}")
        return value

    def integer(self, least: int | None = None) -> int:
        """A whole number, `least` or more."""
        value = self.scalar()
        if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
            raise self.error(f"expects a whole number{'' if least is None else f' of {least} or more'}, but got {self._shown()}")
        return value

    def number(self, least: float | None = None) -> float:
        """A number; a finite one where it is to be `least` or more. YAML 1.1 takes `1e-3` for a text; it is one here."""
        value = self.scalar()
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                pass
        if not isinstance(value, int | float) or isinstance(value, bool) or (least is not None and not least <= value < math.inf):
            raise self.error(f"expects a number{'' if least is None else f' of {least} or more'}, but got {self._shown()}")
        return value

    def choice(self, values: Sequence[str]) -> str:
        """One of some words."""
        value = self._expect("scalar")
        if value not in values:
            raise self.error(f"expects {', '.join(values[:-1])} or {values[-1]}, but got {value!r}")
        return value

    def scalar(self) -> Any:
        """A number, a text, true, false or null."""
        self._expect("scalar")
        try:
            return yaml.SafeLoader("").construct_object(self.node)
        except (yaml.YAMLError, ValueError) as error:
            raise self.error(f"cannot be read: {str(error).splitlines()[0]}") from None

    def plain(self, depth: int = 0) -> Any:
        """A scalar, or lists of them."""
        if not self.is_list:
            return self.scalar()
        if depth > _DEEPEST:
            raise self.error("is nested too deeply")
        return [item.plain(depth + 1) for item in self.items()]


def read(path: str | Path) -> Value:
    """The root of a file. Raises KtirError, with the place where there is one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise KtirError(f"cannot open '{path}': {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise KtirError(f"expects UTF-8, but got byte {error.object[error.start]:#04x} at {error.start}", f"{path}:1:1") from None
    except yaml.MarkedYAMLError as error:
        because = " ".join(filter(None, (error.context, error.problem)))
        raise KtirError(f"is not YAML: {because}", _place(str(path), error.problem_mark or error.context_mark)) from None
    except (yaml.YAMLError, RecursionError) as error:  # a character that YAML has not
        raise KtirError(f"is not YAML: {str(error).splitlines()[0]}", f"{path}:1:1") from None
    if node is None:
        raise KtirError("expects a mapping, but the file is empty", f"{path}:1:1")
    root = Value(node, str(path), "")
    if root.node.id != "mapping":
        raise KtirError(f"expects a mapping, but got {_KINDS[root.node.id]}", root.place)
    return root


def _place(file: str, mark: Any) -> str:
    return f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else f"{file}:1:1"
