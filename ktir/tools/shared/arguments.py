"""What a kernel is called with: the command line of `ktir-run` matched to its parameters."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.interface.parameters import Parameter, Place, argument_names, functions, parameters, roots
from ktir.assembly.names import TextNames
from ktir.checking import inputs
from ktir.diagnostics import KtirError, location_text
from ktir.emulator.strides import dense_strides, lies_as
from ktir.mlir import ir
from ktir.roles import OWN_ROLES
from ktir.tools.shared.flags import UsageError
from ktir.tools.shared.sources import Expected, near, read_value

Address = tuple[str, int] | tuple[str, int, int] | tuple[str, int, str]


@dataclass
class Arguments:
    """A call: what each parameter gets, in order, and what lies at addresses."""

    function: str
    parameters: list[Parameter]
    values: list[Any]
    memory: dict[Address, NDArray[Any]] = field(default_factory=dict)
    elements: dict[str, str | None] = field(default_factory=dict)
    """Element type of each array, as the kernel has it, by name."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays of the call by name; `global:OFF` or `lx:TILE:OFF` for those at addresses."""
        found = {p.name: v for p, v in zip(self.parameters, self.values, strict=True) if isinstance(v, np.ndarray) and v.ndim}
        return found | {":".join(map(str, place)): array for place, array in self.memory.items()}


class Missing(KtirError):
    """Arguments that are not given; the message lists all that the kernel has."""


def choose_function(module: ir.Module, asked: str | None, source: str) -> str:
    """The function to run: `asked`, or the one that no other calls. Raises UsageError, and KtirError where there is none."""
    known = functions(module)
    if asked is not None:
        if asked not in known:
            raise UsageError(f"'{source}' has no function '{asked}'{near(asked, known)}")
        return asked
    if not known:
        raise KtirError("expects a function with a body", f"{source}:1:1")
    entries = roots(module)
    if len(entries) != 1:
        raise UsageError(f"'{source}' has {len(entries)} functions that no other calls; name one with --func" + near("", entries))
    return entries[0]


def pairs(flag: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a table. Raises UsageError for a text without `=` and for a name given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("%")
        if not equals or not name or not value:
            raise UsageError(f"'--{flag} {text}': expected {form}")
        if name in found:
            raise UsageError(f"'--{flag} {text}': '{name}' is given twice")
        found[name] = value
    return found


def address(flag: str, text: str) -> Address:
    """`global:OFF`, `global:OFF:TYPE` or `lx:TILE:OFF`. Raises UsageError."""
    match = re.fullmatch(r"global:(\w+)(?::(\w+))?|lx:(\d+):(\w+)", text)
    try:
        if match is None:
            raise ValueError
        offset = int(match[1] or match[4], 0)
        if offset >= 1 << 63:
            raise UsageError(f"'--{flag} {text}': the offset is too large; an 'index' holds numbers below 2^63")
        if match[1] is None:
            return ("lx", int(match[3]), offset)
        return ("global", offset) if match[2] is None else ("global", offset, match[2])
    except ValueError:
        raise UsageError(f"'--{flag} {text}': expected global:OFFSET or lx:TILE:OFFSET, in elements of the array") from None


def match_arguments(
    module: ir.Module,
    function: str,
    text: str,
    source: str,
    given: Mapping[str, str],
    memory: Mapping[str, str],
    seed: int | None,
    host: list[Parameter] | None = None,
) -> Arguments:
    """Reads all values. `given` and `memory` are sources by name and by address; `seed`: fills what is missing at random; `host`: what the
    caller gives, if that is not what the function takes.

    Raises Missing, UsageError, and SourceError for a value that cannot be had.
    """
    aliases = argument_names(functions(module)[function], TextNames(text), source) if host is None else {}
    found, places = parameters(module, function, names=aliases) if host is None else (host, [])
    found = _as_written(found, aliases)
    names = _matched(function, found, aliases, given)
    numbers: dict[str, int] = {}
    for p in found:
        if not p.is_buffer and p.name in names:
            value = read_value(f"argument '{p.name}'", given[names[p.name]], Expected(p.element, is_number=True), seed or 0)
            if isinstance(value, int):
                numbers[p.name] = value
    if numbers:
        found, places = parameters(module, function, names=aliases, numbers=numbers)
        found = _as_written(found, aliases)
    values: list[Any] = []
    for i, p in enumerate(found):
        if p.name in names:
            expected = Expected(p.element, p.shape, p.below, not p.is_buffer)
            values.append(read_value(f"argument '{p.name}'", given[names[p.name]], expected, i if seed is None else seed + i))
            _check_type(f"argument '{p.name}'", p, values[-1])
        else:
            values.append(None if seed is None else _filled(seed, i, p))
    missing = [p for p, v in zip(found, values, strict=True) if v is None and p.role not in OWN_ROLES]
    laid: dict[Address, NDArray[Any]] = {}
    elements: dict[str, str | None] = {p.name: p.element for p in found}
    at = {key: p for p in places for key in inputs.places_of(p)}
    for name, value in memory.items():
        place = address("mem", name)
        known = at.get(place)  # type: ignore[call-overload]  # a key of another form is not there
        expected = Expected(known.element, known.shape, known.below) if known else Expected()
        array = read_value(f"memory at {name}", value, expected, seed or 0)
        if not isinstance(array, np.ndarray):
            raise UsageError(f"'--mem {name}={value}': expected an array, as @FILE or random:f16[64]")
        if known:
            _check_type(f"memory at {name}", known, array)
        laid[place] = array
        elements[":".join(map(str, place))] = known.element if known else None
    if seed is not None and not memory:
        for i, p in enumerate(places):
            if p.shape is not None:
                laid[p.key] = _filled(seed, len(found) + i, p)
                elements[p.name] = p.element
    if missing:
        where = location_text(functions(module)[function].location)
        raise Missing(_listing(source, function, found, places, names, missing, given, seed), where)
    return Arguments(function, found, values, laid, elements)


def _as_written(found: Sequence[Parameter], aliases: Mapping[int, str]) -> list[Parameter]:
    """Buffers without a name of their own are called as in the text, also where a pass has numbered them."""
    return [replace(p, name=aliases[i]) if p.is_buffer and p.name == f"arg{i}" and i in aliases else p for i, p in enumerate(found)]


def _matched(function: str, found: Sequence[Parameter], aliases: Mapping[int, str], given: Mapping[str, str]) -> dict[str, str]:
    """Name of a parameter -> the name under which it is given. Raises UsageError."""
    spellings = (
        {str(i): p.name for i, p in enumerate(found)} | {a: found[i].name for i, a in aliases.items()} | {p.name: p.name for p in found}
    )
    names: dict[str, str] = {}
    for name in given:
        if name not in spellings:
            raise UsageError(f"'{function}' has no argument '{name}'{near(name, [p.name for p in found])}")
        if spellings[name] in names:
            raise UsageError(f"argument '{spellings[name]}' is given twice, as '{names[spellings[name]]}' and as '{name}'")
        names[spellings[name]] = name
    return names


def _check_type(what: str, p: Parameter | Place, value: Any) -> None:
    """Raises UsageError where the kernel's views cannot be on this array. What lies at an address may be several arrays."""
    if not isinstance(value, np.ndarray):
        return
    if isinstance(p, Parameter) and not p.is_buffer:
        raise UsageError(f"{what} is a number of type {p.element}, but got an array of {value.dtype}")
    if p.element in inputs.DTYPES:
        wanted = inputs.DTYPES[p.element]
        size, least = value.dtype.itemsize, np.dtype(wanted).itemsize
        if value.dtype.name not in (wanted, "uint8") and not (value.dtype.name == "uint16" and least == 2):
            raise UsageError(f"{what} has elements of type {p.element}, expected an array of {wanted}, but got {value.dtype}")
        whole = isinstance(p, Parameter) and p.shape is not None
        if whole and value.size * size < int(np.prod(p.shape or (), dtype=np.int64)) * least:
            raise UsageError(f"{what} needs {_type_text(p)}, but got an array of shape {list(value.shape)}")
        if value.dtype.name != "uint8" or wanted == "uint8":
            _check_lies(what, p, value.shape)


def _check_lies(what: str, p: Parameter | Place, shape: tuple[int, ...]) -> None:
    """Raises UsageError for an array of the kernel's rank whose elements cannot lie as the kernel sees them; one dim is memory."""
    declared = p.strides if isinstance(p, Parameter) else None
    seen = p.views or (() if p.shape is None else ((p.shape, declared or dense_strides(p.shape)),))
    alike = [(size, strides) for size, strides in seen if len(size) == len(shape) > 1]
    if shape == p.shape or not alike or (declared is None and any(lies_as(shape, *view) for view in alike)):
        return
    size, strides = (", ".join("?" if n is None else str(n) for n in part) for part in alike[0])
    shaped = f"{_type_text(p)}, or " if p.shape is not None else ""
    raise UsageError(
        f"{what} is seen with sizes [{size}] and strides [{strides}], as no array of shape {list(shape)} lies; "
        f"give {shaped}its elements as an array of one dim, in the order in which they lie"
    )


def _filled(seed: int, i: int, p: Parameter | Place) -> Any:
    """Random content for inputs, zeros for what is only written; None if the kernel does not tell."""
    if p.role in OWN_ROLES:
        return None
    if isinstance(p, Parameter) and not p.is_buffer:
        return inputs.number(np.random.default_rng([seed, i]), p)
    if p.shape is None:
        return None
    if p.role == "output":
        return inputs.fill("zeros", p.element, p.shape)
    return inputs.generate(np.random.default_rng([seed, i]), p.element, p.shape, p.below)


def _type_text(p: Parameter | Place) -> str:
    if isinstance(p, Parameter) and not p.is_buffer:
        return p.element
    return f"{p.element}[{','.join(map(str, p.shape))}]" if p.shape is not None else f"{p.element}[?]"


def _note(p: Parameter | Place) -> str:
    notes = []
    if p.below is not None:
        notes.append(f"indices below {p.below}")
    if isinstance(p, Parameter):
        if p.shape is None and p.is_buffer:
            by = f"; depends on {', '.join(p.depends)}" if p.depends else ""
            notes.append(f"size not known{by}")
        if p.most is not None:
            notes.append(f"at most {p.most}" + (f", a multiple of {p.granularity}" if p.granularity > 1 else ""))
    return ", ".join(notes)


def _listing(
    source: str,
    function: str,
    found: Sequence[Parameter],
    places: Sequence[Place],
    names: Mapping[str, str],
    missing: Sequence[Parameter],
    given: Mapping[str, str],
    seed: int | None,
) -> str:
    """The arguments of a function and a command line that gives them all."""
    which = ", ".join(f"'{p.name}'" for p in missing)
    lines = [f"'{function}' needs {len(missing)} more argument{'s' if len(missing) > 1 else ''}: {which}; it has"]
    rows: list[tuple[str, str, str, str]] = []
    for p in found:
        rows.append((p.name, "number" if not p.is_buffer else p.role, _type_text(p), "given" if p.name in names else _note(p)))
    for place in places:
        rows.append((place.name, place.role, _type_text(place), _note(place)))
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    lines += ["  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, (*widths, 0), strict=True)).rstrip() for row in rows]
    words = ["ktir-run", source, "--func", function]
    for p in found:
        if p.name in names:
            words += ["--arg", f"{p.name}={given[names[p.name]]}"]
        elif p.role not in OWN_ROLES:
            words += ["--arg", f"{p.name}={_suggestion(p)}"]
    for place in places:
        words += ["--mem", f"{place.name}={_suggestion(place)}"]
    lines += ["for example", "  " + shlex.join(words)]
    if seed is None and all(p.is_buffer and p.shape is not None for p in missing):
        lines.append("or --random 0 for random values in all of them")
    return "\n".join(lines)


def _suggestion(p: Parameter | Place) -> str:
    if isinstance(p, Parameter) and not p.is_buffer:
        return "0.5" if p.element in inputs.FLOATS else str(p.most or "N")
    kind = "zeros" if p.role == "output" else "random"
    return kind + ("" if p.shape is not None else f":{p.element}[N]")


__all__ = ["Arguments", "Missing", "address", "choose_function", "match_arguments", "pairs"]
