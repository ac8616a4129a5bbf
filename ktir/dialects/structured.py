"""Reading and building `linalg.generic`: the three forms that KTIR's producers use.

* pointwise: all loops parallel;
* reduction: one result, the body ends by combining the mapped value with the `outs` argument (`addf`, `maximumf`, `minimumf`,
  and on i32 `addi`, `maxsi`, `minsi`);
* contraction: body `extf, extf, mulf, addf` over two inputs of one float of 16 bits, or with bytes as second one (`sitofp` of i8), and
  an f32 accumulator. What is multiplied may be computed of a byte, and of further inputs that walk some of its loops. Reduced loops (k)
  walk both inputs, columns (n)
  only the second one and rows (m) only the first one; a parallel loop of both is a batch loop. Without columns it is a reduction if there
  are batches, or if sticks and lanes are reduced: a contraction on sticks has the lanes of its second operand as columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ktir.mlir import arith, fill_builtin_region, ir, is_a, linalg, tensor
from ktir.target import LANES, is_byte, is_half, is_two

COMBINERS = {
    "arith.addf": "add",
    "arith.maximumf": "max",
    "arith.minimumf": "min",
    "vector.reduction": "add",
    "arith.maxnumf": "maxnum",
    "arith.minnumf": "minnum",
    "arith.addi": "addi",
    "arith.maxsi": "maxsi",
    "arith.minsi": "minsi",
}
IN_HALVES = {"f16": "addh", "bf16": "addb"}
"""Float of 16 bits -> the combiner whose sums are rounded to it step by step."""
SUMS = ("add", *IN_HALVES.values())
IDENTITY: dict[str, float] = {
    **dict.fromkeys(SUMS, 0.0),
    "max": float("-inf"),
    "min": float("inf"),
    "maxnum": float("-inf"),
    "minnum": float("inf"),
    "addi": 0,
    "maxsi": -(2**31),
    "minsi": 2**31 - 1,
}
"""What leaves the accumulator as it is; integers are i32."""


def identity(kind: str, type_: ir.Type) -> float:
    """What leaves an accumulator of a type as it is; one of i64 has to fit into 32 bits."""
    if kind not in ("maxsi", "minsi"):
        return IDENTITY[kind]
    return int(IDENTITY[kind]) >> max(0, 32 - ir.IntegerType(type_).width)


SUM_OF_PRODUCTS = ["arith.extf", "arith.extf", "arith.mulf", "arith.addf"]
"""The body of a contraction."""
SUM_OF_TWO = "vector.reduction"
"""What ends that of a contraction of elements that are two each."""
INTEGER_PRODUCTS = ["arith.muli", "arith.addi"]
"""The body of a sum of products of integers."""
_DIMS = re.compile(r"\bd(\d+)")


def _extension(type_: ir.Type) -> str:
    """The op that makes an f32 of a number."""
    return "arith.sitofp" if isinstance(type_, ir.IntegerType) else "arith.extf"


def _products_of_two(first: ir.Value, second: ir.Value, so_far: ir.Value) -> ir.Value:
    """The body of a contraction of operands that are two elements each: both products are added."""
    wide = ir.VectorType.get([2], so_far.type)
    extend, multiply = (arith.ExtSIOp, arith.MulIOp) if isinstance(so_far.type, ir.IntegerType) else (arith.ExtFOp, arith.MulFOp)
    both = multiply(*(extend(wide, x).result for x in (first, second))).result
    attributes = {"kind": ir.Attribute.parse("#vector.kind<add>")}
    return ir.Operation.create(SUM_OF_TWO, [so_far.type], [both, so_far], attributes).results[0]


def extended(scalar: ir.Value, to: ir.Type) -> ir.Value:
    """A number as a wider float, which has it exactly."""
    if scalar.type == to:
        return scalar
    return (arith.SIToFPOp if isinstance(scalar.type, ir.IntegerType) else arith.ExtFOp)(to, scalar).result


def sum_of_products(scalars: Sequence[ir.Value]) -> ir.Value:
    """The body of a contraction."""
    first, second, so_far = scalars
    if is_two(first.type):
        return _products_of_two(first, second, so_far)
    wide = [extended(x, so_far.type) for x in (first, second)]
    return arith.AddFOp(so_far, arith.MulFOp(*wide).result).result


def sum_of_made(make: Callable[[Sequence[ir.Value]], ir.Value]) -> Callable[[Sequence[ir.Value]], ir.Value]:
    """The body of a contraction whose second factor `make` computes of all inputs but the first one (`Generic.made_factor`)."""

    def body(scalars: Sequence[ir.Value]) -> ir.Value:
        first, *others, so_far = scalars
        wide = extended(first, so_far.type)
        return arith.AddFOp(so_far, arith.MulFOp(wide, extended(make(others), so_far.type)).result).result

    return body


def makes_block(op: ir.Operation) -> bool:
    """Whether an op computes a block of a second operand, or a part of one, which each corelet does for itself."""
    if is_a(op, tensor.EmptyOp):
        return _is_block(op.results[0])
    if not is_a(op, linalg.GenericOp) or not Generic(op).is_pointwise:
        return False
    uses = list(op.results[0].uses)
    if len(uses) == 1 and is_a(uses[0].owner, tensor.InsertSliceOp) and uses[0].operand_number == 0:
        whole = uses[0].owner.operands[1]
        while not isinstance(whole.owner, ir.Block) and is_a(whole.owner, tensor.InsertSliceOp):
            whole = whole.owner.operands[1]
        return not isinstance(whole.owner, ir.Block) and is_a(whole.owner, tensor.EmptyOp) and _is_block(whole)
    return _is_block(op.results[0])


def _is_block(value: ir.Value) -> bool:
    """Whether a tensor is one block that contractions alone read, as second operand; what is put together of parts, of computed ones."""
    if list(ir.RankedTensorType(value.type).shape)[1:] != [LANES, LANES]:
        return False
    for use in (uses := list(value.uses)):
        if is_a(use.owner, tensor.InsertSliceOp):
            part = use.owner.operands[0].owner
            if use.operand_number != 1 or isinstance(part, ir.Block) or not is_a(part, linalg.GenericOp):
                return False
            if not Generic(part.operation).is_pointwise or not _is_block(use.owner.results[0]):
                return False
        elif is_a(use.owner, tensor.ExtractSliceOp):
            if not _is_block(use.owner.results[0]):
                return False
        elif not is_a(use.owner, linalg.GenericOp) or use.operand_number != 1 or not Generic(use.owner.operation).is_contraction:
            return False
    return bool(uses)


def combiner_of(op: ir.Operation) -> str | None:
    """What a reduction combines with; a sum in 16 bits rounds each of its steps."""
    kind = COMBINERS.get(op.name)
    return IN_HALVES.get(str(op.results[0].type), kind) if kind == "add" else kind


@dataclass(frozen=True)
class Contraction:
    """Loops of a contraction by what they walk, outer to inner. On the flat logical level there is at most one
    column loop; the last reduced loop is K, those before it are taps of a window. Sticks and lanes make two loops of columns and K."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    reduced: tuple[int, ...]


class Generic:
    """A reader's view of one `linalg.generic`; holds the op, so it must not outlive a pass."""

    def __init__(self, op: ir.Operation) -> None:
        self.op = op
        attributes = op.attributes
        self.maps = maps_of(op)
        kinds = str(attributes["iterator_types"])[1:-1].split(", ")  # one text of all takes less than a text of each
        self.iterators = ["reduction" if "reduction" in kind else "parallel" for kind in kinds if kind]
        self.inputs: list[ir.Value] = list(op.operands)[:-1]
        self.init: ir.Value = list(op.operands)[-1]
        self.body: ir.Block = op.regions[0].blocks[0]

    @property
    def body_ops(self) -> list[ir.Operation]:
        """Scalar ops of the body without the yield."""
        return [o.operation for o in self.body.operations][:-1]

    @property
    def yielded(self) -> ir.Value:
        """The scalar that the body yields."""
        return list(self.body.operations)[-1].operands[0]

    @property
    def is_pointwise(self) -> bool:
        """No reduction loop."""
        return "reduction" not in self.iterators

    @property
    def is_contraction(self) -> bool:
        """Whether it has the loops of a contraction; else a sum of products is a reduction."""
        return self.contraction is not None

    @property
    def contraction(self) -> Contraction | None:
        """The loops of a sum of products in f32 of two inputs of one float of 16 bits, the second one perhaps of a byte or of what the body
        computes of it, or of two inputs of pairs, of integers in i32; None for everything else."""
        return self.product_loops if self.sums_products else None

    @property
    def product_loops(self) -> Contraction | None:
        """The loops of a reduction of two factors by what they walk, if they are those of a contraction."""
        if self.is_pointwise or len(self.inputs) < 2 or (len(self.inputs) > 2 and self.made_factor is None):
            return None
        a, b, c = (set(self.walk(i)) - {None} for i in (0, 1, len(self.inputs)))
        loops = [(i, kind == "reduction") for i, kind in enumerate(self.iterators)]
        reduced = tuple(i for i, is_reduced in loops if is_reduced)
        parallel = [i for i, is_reduced in loops if not is_reduced]
        columns = tuple(i for i in parallel if i in b and i not in a)
        batch = tuple(i for i in parallel if i in a and i in b)
        if (not columns and (batch or len(reduced) > 1)) or not a & b >= set(reduced) or not (a | b) & c >= set(parallel):
            return None
        return Contraction(batch, tuple(i for i in parallel if i in a and i not in b), columns, reduced)

    @property
    def sums_products(self) -> bool:
        """Whether the body is that of a contraction."""
        if self.made_factor is not None:
            return True
        if len(self.inputs) != 2:
            return False
        first, second, *_ = self.body.arguments
        body = [o.name for o in self.body_ops]
        if is_two(first.type):
            whole = isinstance(ir.VectorType(first.type).element_type, ir.IntegerType)
            widen, multiply = ("arith.extsi", "arith.muli") if whole else ("arith.extf", "arith.mulf")
            return first.type == second.type and body == [widen, widen, multiply, SUM_OF_TWO]
        if first.type != second.type and not is_byte(second.type):
            return False
        return is_half(first.type) and body == ["arith.extf", _extension(second.type), *SUM_OF_PRODUCTS[2:]]

    @property
    def made_factor(self) -> ir.Value | None:
        """The second factor of a sum of products, where the body computes it, in the type of the first input, of a byte of the second one
        and of those behind it; None where it is an input as it is, or the body another one."""
        if len(self.inputs) < 2 or len(names := [o.name for o in self.body_ops]) < 5 or names[-3:] != SUM_OF_PRODUCTS[1:]:
            return None
        first, second, *_, so_far = self.body.arguments
        *_, widen, multiply, add = self.body_ops
        made, (factor, other) = widen.operands[0], multiply.operands
        if isinstance(made.owner, ir.Block) or isinstance(factor.owner, ir.Block) or not is_a(factor.owner, arith.ExtFOp):
            return None
        links = [*factor.owner.operands, other, *add.operands, self.yielded]
        apart = links == [first, widen.results[0], so_far, multiply.results[0], add.results[0]]
        known = is_half(first.type) and is_byte(second.type) and made.type == first.type
        return made if apart and known and all(len(list(a.uses)) == 1 for a in (first, so_far)) else None

    @property
    def is_integer_product(self) -> bool:
        """Whether it is a matmul of integers of one type."""
        return self.product_loops is not None and [o.name for o in self.body_ops] == INTEGER_PRODUCTS

    @property
    def is_wide_matmul(self) -> bool:
        """Whether it is a matmul of f32, which the array does not take: a reduction on the vector unit."""
        if self.is_pointwise or len(self.inputs) != 2 or [o.name for o in self.body_ops] != ["arith.mulf", "arith.addf"]:
            return False
        a, b = (set(self.walk(i)) - {None} for i in range(2))
        return bool(a - b) and bool(b - a)

    @property
    def combiner(self) -> str | None:
        """The combiner of a reduction; None where the body does not end so, or reads the `outs` argument elsewhere."""
        owner, accumulator = self.yielded.owner, self.body.arguments[len(self.inputs)]
        if isinstance(owner, ir.Block) or [u.owner.operation for u in accumulator.uses] != [owner.operation]:
            return None
        return combiner_of(owner.operation)

    @property
    def sums_floats(self) -> bool:
        """Whether it is a sum of floats, which another order gives other last places."""
        return not self.is_pointwise and self.combiner in SUMS and (is_half(self.yielded.type) or isinstance(self.yielded.type, ir.F32Type))

    @property
    def begins_elsewhere(self) -> bool:
        """Whether it is a reduction that begins from something that its combiner would not leave as it is."""
        kind = None if self.is_pointwise or len(self.op.results) != 1 else self.combiner
        init = self.op.operands[len(self.inputs)].owner
        if kind is None or (not isinstance(init, ir.Block) and is_a(init, tensor.EmptyOp)):
            return False
        return isinstance(init, ir.Block) or _number_in_all(init) != identity(kind, self.yielded.type)

    @property
    def mapped(self) -> ir.Value:
        """Of a reduction: the scalar that is combined with the accumulator."""
        accumulator = self.body.arguments[len(self.inputs)]
        a, b = self.yielded.owner.operands
        return b if a == accumulator else a

    def loop_of(self, operand: int, dim: int) -> int | None:
        """Loop that addresses dimension `dim` of an operand; None = a constant."""
        expression = self.maps[operand].results[dim]
        return ir.AffineDimExpr(expression).position if isinstance(expression, ir.AffineDimExpr) else None

    def walk(self, operand: int) -> list[int | None]:
        """The loop along each dimension of an operand."""
        return [self.loop_of(operand, d) for d in range(len(self.maps[operand].results))]

    def copy_body(self, scalars: Sequence[ir.Value], loops: Mapping[int, int] | None = None) -> ir.Value:
        """What the body computes of other scalars, at the insertion point. `loops`: the numbers that its loops have there."""
        mapping = dict(zip(self.body.arguments, scalars, strict=True))
        clone_ops(self.body_ops, mapping)
        if loops is not None:
            renumber([mapping[o.results[0]].owner for o in self.body_ops], loops)
        return mapping.get(self.yielded, self.yielded)

    def copy_mapped(self, scalars: Sequence[ir.Value]) -> ir.Value:
        """Of a reduction: what its body computes of other inputs, without what combines that with the accumulator."""
        mapping = dict(zip(list(self.body.arguments)[:-1], scalars, strict=False))
        clone_ops([o for o in self.body_ops if o != self.yielded.owner.operation], mapping)
        return mapping.get(self.mapped, self.mapped)


def renumber(ops: Iterable[ir.Operation | ir.OpView], loops: Mapping[int, int]) -> None:
    """Let each `linalg.index` among ops of a body ask for the loop that has taken the place of its own."""
    for op in ops:
        if is_a(op, linalg.IndexOp):
            dim = ir.IntegerAttr(op.attributes["dim"])
            op.attributes["dim"] = ir.IntegerAttr.get(dim.type, loops.get(dim.value, dim.value))


def maps_of(op: ir.Operation) -> list[ir.AffineMap]:
    """The maps of a generic, one per operand."""
    return [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]


def set_maps(op: ir.Operation, maps: Sequence[ir.AffineMap]) -> None:
    """Give a generic other maps."""
    op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])


def loop_extents(op: ir.Operation, shapes: Sequence[Sequence[int]] | None = None) -> list[int]:
    """Extents of the loops of a generic, negative where they are dynamic; of one whose operands have had these shapes."""
    maps = maps_of(op)
    extents = [1] * maps[0].n_dims
    for sizes, m in zip(shapes or [ir.RankedTensorType(v.type).shape for v in op.operands], maps, strict=True):
        for size, result in zip(sizes, m.results, strict=True):
            if isinstance(result, ir.AffineDimExpr):
                extents[ir.AffineDimExpr(result).position] = size
    return extents


def overwritten(op: ir.Operation) -> str | None:
    """What is wrong with a generic of which all trips of a parallel loop write one element, so that no order says which one is left."""
    parallel = [loop for loop, kind in enumerate(ir.ArrayAttr(op.attributes["iterator_types"])) if "parallel" in str(kind)]
    for written in maps_of(op)[len(op.operands) - len(op.results) :]:
        walked = {int(dim) for dim in _DIMS.findall(", ".join(map(str, written.results)))}
        if len(walked) < len(parallel):
            shapes = [list(v.type.shape) if isinstance(v.type, ir.RankedTensorType) else [] for v in op.operands]
            extents = loop_extents(op, shapes)
            loop = next((loop for loop in parallel if loop not in walked and extents[loop] != 1), None)
            if loop is not None:
                return f"has the parallel loop d{loop}, all trips of which write the same element of a result; a 'reduction' has an order"
    return None


def affine_map(loops: int, results: Sequence[int | None]) -> ir.AffineMap:
    """A projected permutation: a loop number per result, None = constant 0."""
    zero = ir.AffineConstantExpr.get(0)
    return ir.AffineMap.get(loops, 0, [zero if r is None else ir.AffineDimExpr.get(r) for r in results])


def number(type_: ir.Type, value: float) -> ir.Attribute:
    """A number as an attribute of a float or integer type."""
    return ir.IntegerAttr.get(type_, int(value)) if isinstance(type_, ir.IntegerType) else ir.FloatAttr.get(type_, value)


def constant(type_: ir.Type, value: float) -> ir.Value:
    """A number of a float, integer or index type, at the insertion point."""
    return arith.ConstantOp(type_, number(type_, value)).result


def index_constant(value: int) -> ir.Value:
    """An index constant at the insertion point."""
    return arith.ConstantOp(ir.IndexType.get(), value).result


def index_sum(a: int | ir.Value, b: int | ir.Value) -> int | ir.Value:
    """The sum of two indices, each a number or a value; an op at the insertion point where it takes one."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0 or b == 0:
        return b if a == 0 else a
    return arith.AddIOp(*(index_constant(n) if isinstance(n, int) else n for n in (a, b))).result


def moved_by(address: ir.Value, distance: int) -> ir.Value:
    """An address so many elements further on."""
    return arith.AddIOp(address, index_constant(distance)).result if distance else address


def fill(scalar: ir.Value, into: ir.Value) -> ir.Value:
    """`linalg.fill` at the insertion point: a tensor like `into` that is `scalar` everywhere."""
    op = linalg.FillOp([into.type], [scalar], [into])
    fill_builtin_region(op.operation)
    return op.result


def _number_in_all(op: ir.Operation) -> float | None:
    """The number in all elements of what an op makes, if it is one."""
    if is_a(op, linalg.FillOp):
        source = op.operands[0].owner
        return None if isinstance(source, ir.Block) or not is_a(source, arith.ConstantOp) else _number(source.attributes["value"])
    return _number(op.attributes["value"]) if is_a(op, arith.ConstantOp) else None


def _number(attribute: ir.Attribute) -> float | None:
    """A number, also as all elements of a tensor."""
    if isinstance(attribute, ir.DenseElementsAttr):
        attribute = attribute.get_splat_value() if attribute.is_splat else attribute
    return attribute.value if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr) else None


def filled(shape: Sequence[int], element: ir.Type, value: float) -> ir.Value:
    """A tensor of one number."""
    empty = tensor.EmptyOp(list(shape), element).result
    return fill(constant(element, value), empty)


def element_of(value: ir.Value) -> ir.Type:
    """Element type of a tensor."""
    return ir.RankedTensorType(value.type).element_type


def generic(
    inputs: Sequence[ir.Value],
    init: ir.Value,
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    body: Callable[[list[ir.Value]], ir.Value],
    *,
    loc: ir.Location,
) -> ir.Value:
    """Build a one-result `linalg.generic`; `body` gets the block arguments and returns the scalar to yield."""
    operands = [*inputs, init]
    iterator_types = ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{i}>") for i in iterators])
    op = ir.Operation.create(
        "linalg.generic",
        results=[init.type],
        operands=operands,
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": iterator_types,
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
        regions=1,
        loc=loc,
    )
    types = [element_of(v) for v in operands]
    block = ir.Block.create_at_start(op.regions[0], types, [loc] * len(types))
    with ir.InsertionPoint(block), loc:
        linalg.YieldOp([body(list(block.arguments))])
    return op.results[0]


def elementwise(
    inputs: Sequence[ir.Value],
    init: ir.Value,
    body: Callable[[list[ir.Value]], ir.Value] = lambda scalars: scalars[0],
    walks: Sequence[Sequence[int | None]] | None = None,
) -> ir.Value:
    """Build a generic over the elements of `init`, a copy by default; per input its `walks` are the dim of `init` along each of its dims,
    all of them by default."""
    rank = ir.RankedTensorType(init.type).rank
    maps = [affine_map(rank, walk) for walk in (*(walks or [range(rank)] * len(inputs)), range(rank))]
    return generic(inputs, init, maps, ["parallel"] * rank, body, loc=ir.Location.current)


def padded(value: ir.Value, type_: ir.RankedTensorType, fill: float = 0.0) -> ir.Value:
    """A tensor with a number behind its elements, of a larger type."""
    high = [n - own for n, own in zip(type_.shape, ir.RankedTensorType(value.type).shape, strict=True)]
    pad = tensor.PadOp(type_, value, [], [], [0] * type_.rank, high)
    block = ir.Block.create_at_start(pad.operation.regions[0], [ir.IndexType.get()] * type_.rank, [ir.Location.current] * type_.rank)
    with ir.InsertionPoint(block):
        tensor.YieldOp(constant(type_.element_type, fill))
    return pad.result


def clone_ops(ops: Sequence[ir.Operation], mapping: dict[ir.Value, ir.Value]) -> None:
    """Clone ops without regions at the insertion point with operands replaced; `mapping` grows by their results.

    A constant from outside is cloned along, so that a body never refers to the function that it came from.
    """
    for op in ops:
        for operand in op.operands:
            owner = operand.owner
            if operand not in mapping and not isinstance(owner, ir.Block) and owner.name == "arith.constant":
                mapping[operand] = owner.clone().results[0]
        clone = op.clone()
        for i, operand in enumerate(op.operands):
            if operand in mapping:
                clone.operands[i] = mapping[operand]
        for old, new in zip(op.results, clone.results, strict=True):
            mapping[old] = new


def rebuild(g: Generic, inputs: Sequence[ir.Value], init: ir.Value) -> ir.Value:
    """The same generic on other operands (of other shapes): maps, iterators and body are kept."""
    return generic(inputs, init, g.maps, g.iterators, g.copy_body, loc=g.op.location)
