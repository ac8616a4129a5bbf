"""What every dialect of ours builds on: a thin layer over `ext` that adds text syntax, typed parameters and MLIR's wording.

* An attribute or type declares its parameters by annotations (`list[int]`, `int`, `str`, `Literal[...]`, `ir.Type`, or
  `Annotated[..., codec]`); they are read as such from an instance, and `build` makes one from such values.
* An op declares operands, results and regions as `ext` does, the attributes it requires in `required`, its text in `assembly`,
  and what else must hold in `check`.

Never use `from __future__ import annotations` in a dialect file: `ext` needs the annotations as objects.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Optional, Self, TypeVar, Union, get_args, get_origin

from ktir.assembly import judgement
from ktir.assembly.formats import Group, OpSyntax, collapse, expand, register_op, register_parameters
from ktir.assembly.parameters import Codec, Integer, Integers, IntegerSet, Keyword, OptionalInteger, ParameterList, TypeList, TypeName
from ktir.diagnostics import KtirError
from ktir.mlir import ext, ir

Dialect = ext.Dialect

_NO_NAMES: tuple[str, ...] = ()
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _codec(annotation: Any) -> Codec:
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[1]
    if get_origin(annotation) is Literal:
        return Keyword(get_args(annotation))
    if annotation == list[int]:
        return Integers()
    return {int: Integer, str: Keyword, ir.Type: TypeName}[annotation]()


def _constraint(codec: Codec) -> Any:
    """The IRDL constraint of a parameter; the bindings cannot name the classes of arrays and types."""
    if isinstance(codec, Integers | TypeName):
        return Any
    if isinstance(codec, OptionalInteger | TypeList | IntegerSet):
        return Any
    return ir.StringAttr if isinstance(codec, Keyword) else ir.IntegerAttr


def _declare(cls: Any) -> None:
    """Takes the annotations as typed parameters and puts the IRDL constraints in their place."""
    cls.codecs = {name: _codec(annotation) for name, annotation in cls.__annotations__.items()}
    cls.__annotations__ = {name: _constraint(codec) for name, codec in cls.codecs.items()}


def _publish(cls: Any, name: str) -> None:
    """Defines the typed accessors and registers the syntax under `name`."""
    for i, (key, codec) in enumerate(cls.codecs.items()):
        setattr(cls, key, property(lambda self, i=i, codec=codec: codec.from_attribute(self.params[i])))
    parameters = ParameterList(name, cls.codecs, cls.positional, cls.defaults, cls.elided, cls.check, cls.joint, cls.successor)
    register_parameters(name, parameters)


def _build(cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    values = dict(cls.defaults) | dict(zip(cls.codecs, args, strict=False)) | dict(kwargs)
    if unknown := [name for name in values if name not in cls.codecs]:
        raise TypeError(f"{cls.__name__} has no parameter '{unknown[0]}'")
    for name, codec in cls.codecs.items():
        if name not in values:
            raise TypeError(f"{cls.__name__}: missing parameter '{name}'")
        if isinstance(codec, Keyword) and codec.choices and values[name] not in codec.choices:
            raise KtirError(f"expected {codec.what}, but got '{values[name]}'")
    if fault := cls.check(values):
        raise KtirError(fault)
    return cls.get(*(codec.to_attribute(values[name]) for name, codec in cls.codecs.items()))


class Attribute(ext.Attribute):
    """Base of our attributes. `positional` parameters stand bare and first in the text; those in `defaults` may be left out of
    the text and of `build`, and those in `elided` are not printed when they have their default value."""

    positional = _NO_NAMES
    defaults = _NOTHING
    elided = _NO_NAMES
    joint = " = "

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        if name:
            _declare(cls)
        super().__init_subclass__(name=name, **kwargs)
        if name:
            _publish(cls, f"#{cls.attr_name}")

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        """What is wrong with parameter `values` by name, or None."""
        return None

    @staticmethod
    def successor(values: Mapping[str, Any]) -> str | None:
        """What to write instead, if this is an old spelling."""
        return None

    @classmethod
    def build(cls, *args: Any, **kwargs: Any) -> Self:
        """The attribute with these parameters, in the current context. Raises KtirError for illegal values."""
        return _build(cls, args, kwargs)


class Type(ext.Type):
    """Base of our types; as `Attribute`."""

    positional = _NO_NAMES
    defaults = _NOTHING
    elided = _NO_NAMES
    joint = " = "

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        if name:
            _declare(cls)
        super().__init_subclass__(name=name, **kwargs)
        if name:
            _publish(cls, f"!{cls.type_name}")

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        """What is wrong with parameter `values` by name, or None."""
        return None

    @staticmethod
    def successor(values: Mapping[str, Any]) -> str | None:
        """What to write instead, if this is an old spelling."""
        return None

    @classmethod
    def build(cls, *args: Any, **kwargs: Any) -> Self:
        """The type with these parameters, in the current context. Raises KtirError for illegal values."""
        return _build(cls, args, kwargs)


@dataclass(frozen=True)
class Spread:
    """Marks a variadic field whose values may differ in type: `Annotated[Sequence[ext.Operand[T]], Spread(8)]` takes up to 8.

    MLIR demands one type of all values of a variadic field of ours, so it is declared as that many optional fields. Accessors and text
    know one field; so does generic text, where `operandSegmentSizes` has one number for it.
    """

    most: int


class ReadEffect(ir.MemoryEffectsOpInterface):
    """The op reads memory."""

    @staticmethod
    def get_effects(op: Any, effects: Any) -> None:
        effects.append(ir.MemoryEffect.Read)


class WriteEffect(ir.MemoryEffectsOpInterface):
    """The op writes memory."""

    @staticmethod
    def get_effects(op: Any, effects: Any) -> None:
        effects.append(ir.MemoryEffect.Write)


Pure = ext.Pure

_COUNTS = {ext.Variadicity.single: "single", ext.Variadicity.optional: "optional", ext.Variadicity.variadic: "variadic"}


def _classes(constraint: Any) -> tuple[type, ...]:
    """The classes that `constraint` admits; empty if they cannot be told by class alone."""
    if get_origin(constraint) in (Union, UnionType):
        inner = [_classes(c) for c in get_args(constraint)]
        return tuple(c for group in inner for c in group) if all(inner) else ()
    return (constraint,) if isinstance(constraint, type) and hasattr(constraint, "type_name") else ()


def _describe(cls: type) -> str:
    """How messages name a class of types or attributes."""
    name = getattr(cls, "type_name", None)
    if name is None:
        return _ATTRIBUTE_NAMES.get(cls, f"#{getattr(cls, 'attr_name', cls.__name__)}")
    return _TYPE_NAMES.get(name, f"!{name}")


_TYPE_NAMES = {"builtin.index": "index", "builtin.memref": "ranked memref", "builtin.tensor": "ranked tensor"}
_ATTRIBUTE_NAMES = {
    ir.DenseI64ArrayAttr: "an i64 array",
    ir.IntegerAttr: "an integer",
    ir.IntegerSetAttr: "an integer set",
    ir.AffineMapAttr: "an affine map",
    ir.StringAttr: "a string",
}


def _spread_out(cls: Any) -> dict[str, int]:
    """Turns the fields marked with `Spread` into optional ones; their names and how many each became."""
    spreads: dict[str, int] = {}
    annotations: dict[str, Any] = {}
    for name, annotation in cls.__annotations__.items():
        if get_origin(annotation) is Annotated:
            variadic, spread = get_args(annotation)
            spreads[name] = spread.most
            for i in range(spread.most):
                annotations[f"{name}_{i}"] = Optional[get_args(variadic)[0]]  # noqa: UP045  # `|` would make another kind of union
                setattr(cls, f"{name}_{i}", None)
            continue
        annotations[name] = annotation
        if spreads and annotation is not ext.Region:  # fields after optional ones must be optional or given by name
            kind = get_args(annotation)[0] if get_origin(annotation) is Sequence else annotation
            setattr(cls, name, ext.result(kw_only=True) if get_origin(kind) is ext.Result else ext.operand(kw_only=True))
    cls.__annotations__ = annotations
    return spreads


def _group(field: Any, spreads: Mapping[str, int]) -> Group | None:
    """The group of a field; None for all but the first of those that stand for one."""
    base, _, number = field.name.rpartition("_")
    if base in spreads:
        return Group(base, "variadic", spread=spreads[base]) if number == "0" else None
    fixed = "index" if field.constraint is ir.IndexType else None
    if get_origin(field.constraint) is ir.IntegerType:
        fixed = f"i{get_args(field.constraint)[0]}"
    like = field.constraint.__name__ if isinstance(field.constraint, TypeVar) else None
    classes = _classes(field.constraint)
    name = f"!{classes[0].type_name}" if len(classes) == 1 else None  # type: ignore[attr-defined]  # _classes looked
    return Group(field.name, _COUNTS[field.variadicity], fixed, like, name)


class Fields:
    """The operands or the results of an op class, in order, with what their types must be."""

    def __init__(self, kind: str, fields: Sequence[Any], spreads: Mapping[str, int] = _NOTHING) -> None:
        self.kind = kind
        found = [(group, _classes(f.constraint)) for f in fields if (group := _group(f, spreads))]
        self.groups = tuple(group for group, _ in found)
        self.classes = [classes for _, classes in found]
        self.multiple = [i for i, g in enumerate(self.groups) if g.count != "single"]
        self.spread = any(g.spread for g in self.groups)
        self.segments = f"{kind}SegmentSizes" if len(self.multiple) > 1 or self.spread else None

    def sizes(self, op: Any) -> list[int]:
        """How many values each group of an op with segment sizes has."""
        sizes = list(ir.DenseI32ArrayAttr(op.attributes[self.segments]))
        return collapse(self.groups, sizes) if self.spread else sizes

    def segment_attribute(self, sizes: Sequence[int]) -> ir.Attribute:
        """Segment sizes of an op with `sizes[k]` values in group k."""
        return ir.DenseI32ArrayAttr.get(expand(self.groups, sizes))

    def fault(self, op: Any, values: Sequence[Any]) -> str | None:
        """What is wrong with the number or the types of `values`."""
        count = len(values)
        spare = count - (len(self.groups) - len(self.multiple))
        if self.segments:
            if self.segments not in op.attributes:
                return f"requires attribute '{self.segments}'"
            sizes = self.sizes(op)
        else:
            sizes = [spare if i in self.multiple else 1 for i in range(len(self.groups))]
        if spare < 0 or sum(sizes) != count or len(sizes) != len(self.groups):
            return f"has a wrong number of {self.kind}s: {count}"
        at = 0
        for group, classes, size in zip(self.groups, self.classes, sizes, strict=True):
            for i in range(at, at + size) if classes else ():
                if not isinstance(values[i].type, classes):
                    wanted = " or ".join(map(_describe, classes))
                    return f"{self.kind} #{i} ('{group.name}') must be {wanted}, but got '{values[i].type}'"
            at += size
        return None


class Operation(ext.Operation):
    """Base of our ops.

    `assembly` is the format after the op's name (see `ktir.assembly.formats`); `required` maps the attributes that the op must
    have to their classes. `check` may rely on both and on the number and classes of operands and results. A scalar op that the vector
    unit computes names its kind (see `ktir.isa.kinds`) as `vector_kind`: every level has it, and it lowers to a word of that kind.
    """

    assembly = "attr-dict"
    vector_kind = ""
    required = _NOTHING
    operand_fields = Fields("operand", ())
    result_fields = Fields("result", ())

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        spreads = _spread_out(cls) if name else {}
        super().__init_subclass__(name=name, **kwargs)
        if not name:
            return
        operands, _, results, regions = ext.partition_fields(cls._fields)
        cls.operand_fields, cls.result_fields = Fields("operand", operands, spreads), Fields("result", results, spreads)
        for fields in (cls.operand_fields, cls.result_fields):
            _fix_accessors(cls, fields)
        segments = frozenset(s for s in (cls.operand_fields.segments, cls.result_fields.segments) if s)
        names = tuple(r.name for r in regions)
        groups = cls.operand_fields.groups, cls.result_fields.groups
        register_op(OpSyntax(cls.OPERATION_NAME, cls.assembly, *groups, names, segments))

    def check(self) -> str | None:
        """What is wrong with the op, worded to follow `'dialect.op' op `, or None."""
        return None

    def doubt(self) -> str | None:
        """What is suspicious about an op that passed `check`, worded likewise, or None. See `ktir.assembly.judgement`."""
        return None

    @staticmethod
    def verify_invariants(op: Any) -> bool:
        fault = op.operand_fields.fault(op, op.operands) or op.result_fields.fault(op, op.results) or _missing(op) or op.check()
        if fault is None:
            judge = judgement.current()
            doubt = op.doubt() if judge else None
            return judge is None or doubt is None or judge.suspect(op.OPERATION_NAME, op.location, doubt)
        return report(op, fault)


def report(op: Any, fault: str) -> bool:
    """Reports what is wrong with an op, an error per line of `fault`; False."""
    for line in fault.split("\n"):
        op.location.emit_error(f"'{op.OPERATION_NAME}' op {line}")
    return False


def _missing(op: Any) -> str | None:
    attributes = op.attributes
    for name, cls in op.required.items():
        if name not in attributes:
            return f"requires attribute '{name}'"
        if not isinstance(attributes[name], cls):
            wanted = " or ".join(map(_describe, cls if isinstance(cls, tuple) else (cls,)))
            return f"attribute '{name}' must be {wanted}, but got {attributes[name]}"
    return None


def _fix_accessors(cls: Any, fields: Fields) -> None:
    """Accessors of fields that `ext` does not know, and of ops with one variadic field, where its accessors need segment sizes."""
    values = operator.attrgetter(f"{fields.kind}s")
    if fields.spread:
        for i, group in enumerate(fields.groups):
            setattr(cls, group.name, property(lambda op, i=i, group=group: _of_group(fields.sizes(op), i, group, list(values(op)))))
        return
    if len(fields.multiple) != 1:
        return
    before, after = fields.multiple[0], len(fields.groups) - fields.multiple[0] - 1
    for i, group in enumerate(fields.groups):

        def get(op: Any, i: int = i, optional: bool = group.count == "optional") -> Any:
            all_ = list(values(op))
            if i < before:
                return all_[i]
            if i > before:
                return all_[len(all_) - (before + after + 1 - i)]
            inside = all_[before : len(all_) - after]
            return (inside[0] if inside else None) if optional else inside

        setattr(cls, group.name, property(get))


def _of_group(sizes: Sequence[int], i: int, group: Group, values: Sequence[Any]) -> Any:
    start = sum(sizes[:i])
    inside = values[start : start + sizes[i]]
    return inside if group.count == "variadic" else inside[0] if inside else None
