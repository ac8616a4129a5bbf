"""Python floats that change between calls: the host computes with them, in double precision as Python does, and a program gets the result.

Inductor has such a number as a tensor of float64 without dims. What a nest computes of these alone, up to the conversion to the type it is
used in, is an expression of the host; in its place the nest loads a number of float32. A conversion to half precision does not round it:
where eager PyTorch does, there is a rounding in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ktir.lowering.region_to_ktir.region import Record

_OPERATORS = {
    **{"add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "truediv": "({} / {})", "neg": "(-{})", "abs": "abs({})"},
    **{"pow": "math.pow({}, {})", "sqrt": "math.sqrt({})", "maximum": "max({}, {})", "minimum": "min({}, {})"},
    **{"trunc": "float(math.trunc({}))", "floor": "float(math.floor({}))", "ceil": "float(math.ceil({}))"},
}
_CONVERSIONS = {"float64": "float({})", "int64": "int({})"}
_SINGLE = ("float32", "float16", "bfloat16")


class Numbers:
    """The numbers of a graph: host expressions by the name of the argument that holds them."""

    def __init__(self, is_number: Callable[[str], bool]) -> None:
        """is_number: whether a buffer is an input of the graph that holds one float64."""
        self.is_number = is_number
        self.expressions: dict[str, str] = {}

    def taken_out(self, records: Sequence[Record]) -> tuple[Record, ...]:
        """The records of a nest with loads of numbers in place of what the host computes."""
        texts: dict[str, str] = {}  # by name: what the host can compute
        numbers: dict[str, str] = {}  # by name: the argument that holds it
        found: list[Record] = []
        for record in records:
            text = self._text(record, texts)
            if text is not None:
                texts[record.out] = text
            if record.op == "to_dtype" and record.dtype in _SINGLE and "item()" in texts.get(record.args[0], ""):
                numbers[record.out] = self._argument(texts[record.args[0]])
            elif record.op == "to_dtype" and record.dtype in _SINGLE and record.args[0] in numbers:
                numbers[record.out] = numbers[record.args[0]]
            if record.out in numbers:
                record = Record("load", record.out, buffer=numbers[record.out], dtype="float32")
            found.append(record)
        return _used(found) if numbers else tuple(records)

    def _text(self, record: Record, texts: dict[str, str]) -> str | None:
        if record.op == "load" and self.is_number(record.buffer):
            return f"{record.buffer}.item()"
        if record.op == "constant" and record.dtype == "float64":
            return f"float({str(float(record.value))!r})"
        forms = _CONVERSIONS if record.op == "to_dtype" else _OPERATORS if record.dtype == "float64" else {}
        form = forms.get(record.dtype if record.op == "to_dtype" else record.op)
        return form.format(*(texts[a] for a in record.args)) if form and all(a in texts for a in record.args) else None

    def _argument(self, text: str) -> str:
        name = next((n for n, t in self.expressions.items() if t == text), f"number{len(self.expressions)}")
        self.expressions[name] = text
        return name


def _used(records: Sequence[Record]) -> tuple[Record, ...]:
    """Without values that nothing uses."""
    kept: list[Record] = []
    used: set[str] = set()
    for record in reversed(records):
        if not record.results or used & set(record.results) or record.op in ("indirect", "check_bounds"):
            kept.append(record)
            used |= {*record.args, *_of_body(record)}
    return tuple(reversed(kept))


def _of_body(record: Record) -> set[str]:
    """Names that a nested body uses."""
    return {name for inner in record.body for name in (*inner.args, *_of_body(inner))} | set(record.yields)
