"""The `ktir` dialect: ops that the logical level needs besides the published and the upstream ones, and attributes by which the passes
tell each other what they decided.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from ktir.dialects._foundation.base import Attribute, Dialect, Operation, Pure, Spread, report
from ktir.dialects._ktdp.types import AccessTileType
from ktir.mlir import ext, ir
from ktir.target import LANES, is_two

MOST_VALUES = 8


class Ktir(Dialect, name="ktir"):
    """Logical ops, layouts, work division and LX allocation of KTIR programs."""


class LayoutAttr(Attribute, dialect=Ktir, name="layout"):
    """How a logical tensor of shape `size` lies in sticks: the encoding of a laid-out tensor type.

    `device` is the physical shape; `strides` gives, per physical dim, the distance in elements of the logical row-major tensor.
    `dtype` is the element type in memory, `arrangement` how elements lie inside a stick, `pad` what is known of the lanes
    outside the logical tensor.

        #ktir.layout<size = [200, 130], device = [3, 200, 64], strides = [64, 130, 1], dtype = f16, arrangement = standard,
                     pad = uninit>
    """

    size: list[int]
    device: list[int]
    strides: list[int]
    dtype: ir.Type
    arrangement: str
    pad: str

    defaults = {"arrangement": "standard", "pad": "uninit"}

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        if len(values["device"]) != len(values["strides"]):
            return f"layout expects one stride per device dim, but got {values['strides']} for {values['device']}"
        if any(n < 0 for n in (*values["size"], *values["device"])):
            return "layout sizes must be non-negative"
        return None


class HostViewAttr(Attribute, dialect=Ktir, name="host_view"):
    """Which elements of host argument `arg` a device tensor holds: offset, sizes and strides in elements.

    #ktir.host_view<arg = 0, offset = 0, size = [57, 64], strides = [64, 1]>
    """

    arg: int
    offset: int
    size: list[int]
    strides: list[int]

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        if len(values["size"]) != len(values["strides"]):
            return f"host view expects one stride per dim, but got {values['strides']} for {values['size']}"
        if any(n < 0 for n in (values["arg"], values["offset"], *values["size"], *values["strides"])):
            return "host view numbers must be non-negative"
        return None


class WorkAttr(Attribute, dialect=Ktir, name="work"):
    """The division of a kernel: into how many parts each loop is split, and the extent of one core's part.

    #ktir.work<splits = [1, 29, 1], tile = [2, 2, 64]>
    """

    splits: list[int]
    tile: list[int]

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        if len(values["splits"]) != len(values["tile"]):
            return f"work expects one tile extent per split, but got {values['tile']} for {values['splits']}"
        return None if all(n > 0 for n in (*values["splits"], *values["tile"])) else "work numbers must be positive"


class AccAttr(Attribute, dialect=Ktir, name="acc"):
    """The unit whose accumulator a loop-carried tensor lives in: `#ktir.acc<PT>` or `#ktir.acc<SFP>`."""

    unit: Literal["PT", "SFP"]

    positional = ("unit",)


class RotateAttr(Attribute, dialect=Ktir, name="rotate"):
    """A buffer that changes place with every trip: `nbuf` places, `stride` bytes apart, one after the other.

    Inner loops may walk through what lies between two places, with an address that has a step for each of their trips.

    #ktir.rotate<nbuf = 2, stride = 8192>
    """

    nbuf: int
    stride: int

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        return None if values["nbuf"] > 0 and values["stride"] >= 0 else "rotate needs nbuf > 0 and stride >= 0"


class ResidentAttr(Attribute, dialect=Ktir, name="resident"):
    """A tensor that stays in the scratchpad of every core from one kernel to later ones: its name, and where it lies there, in bytes.

    #ktir.resident<name = pool2, address = 1608960, bytes = 16384>
    """

    name: str
    address: int
    bytes: int

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        return None if values["address"] >= 0 and values["bytes"] > 0 else "resident needs address >= 0 and bytes > 0"


class AccumulateEffect(ir.MemoryEffectsOpInterface):
    """The op reads memory and writes it."""

    @staticmethod
    def get_effects(op: Any, effects: Any) -> None:
        effects.append(ir.MemoryEffect.Read)
        effects.append(ir.MemoryEffect.Write)


class MaterializeOp(Operation, dialect=Ktir, name="materialize", traits=[Pure]):
    """Memory of its own that holds a tensor, row-major: what `ind()` reads its indices from, or what data is gathered from. It is never
    written afterwards, so equal ones are one.

        %m = ktir.materialize %x : tensor<16xi64> -> memref<16xi64>
    """

    memory: ext.Result[ir.MemRefType]
    tensor: ext.Operand[ir.RankedTensorType]

    assembly = "$tensor attr-dict `:` type($tensor) `->` type($memory)"

    def check(self) -> str | None:
        value, memory = self.operands[0].type, self.results[0].type
        if memory.shape != value.shape or memory.element_type != value.element_type:
            return f"expects memory of the tensor's shape and element type, but got '{memory}' for '{value}'"
        return None


class ScatterAddOp(Operation, dialect=Ktir, name="scatter_add", traits=[AccumulateEffect]):
    """Adds a tensor to the elements of a tile of the same shape. The tile may name an element several times: the additions to it happen
    one after the other in row-major order of the tensor, each rounded to the element type.

        ktir.scatter_add %x, %t : tensor<4x64xf32>, !ktdp.access_tile<4x64xindex>
    """

    value: ext.Operand[ir.RankedTensorType]
    tile: ext.Operand[Any]

    assembly = "$value `,` $tile attr-dict `:` type($value) `,` type($tile)"

    def check(self) -> str | None:
        value, tile = self.operands[0].type, self.operands[1].type
        if not isinstance(tile, AccessTileType):
            return f"operand #1 ('tile') must be !ktdp.access_tile, but got '{tile}'"
        if value.shape != tile.shape:
            return f"expects a tile of the value's shape, but got '{tile}' for '{value}'"
        return None


class YieldOp(Operation, dialect=Ktir, name="yield", traits=[ir.IsTerminatorTrait, Pure]):
    """Ends the combiner of a `ktir.scan` with the combined scalars."""

    values: Annotated[Sequence[ext.Operand[Any]], Spread(MOST_VALUES)]

    assembly = "$values `:` type($values) attr-dict"

    def check(self) -> str | None:
        parent = self.operation.parent
        if parent is None or parent.name != ScanOp.OPERATION_NAME:
            return f"expects parent op '{ScanOp.OPERATION_NAME}'"
        expected = [value.type.element_type for value in parent.operands]
        found = [value.type for value in self.operands]
        if found != expected:
            return f"expects scalars of types {_types(expected)}, but got {_types(found)}"
        return None


class ScanOp(Operation, dialect=Ktir, name="scan", traits=[Pure]):
    """Inclusive scan along a dimension: element 0 as it is, element i the combination of result i - 1 with element i. The combiner gets the
    scalars of the former, then those of the latter.

        %y = ktir.scan %x dimension = 1 : tensor<4x64xf32> -> tensor<4x64xf32> {
        ^bb0(%a: f32, %b: f32):
          %c = arith.addf %a, %b : f32
          ktir.yield %c : f32
        }
    """

    outputs: Annotated[Sequence[ext.Result[ir.RankedTensorType]], Spread(MOST_VALUES)]
    values: Annotated[Sequence[ext.Operand[ir.RankedTensorType]], Spread(MOST_VALUES)]
    combiner: ext.Region

    required = {"dimension": ir.IntegerAttr}
    assembly = "$values `dimension` `=` integer($dimension) attr-dict `:` type($values) `->` type($outputs) region($combiner)"

    def check(self) -> str | None:
        return _along_fault(self)

    @staticmethod
    def verify_region_invariants(op: Any) -> bool:
        blocks = list(op.regions[0].blocks)
        expected = [value.type.element_type for value in op.operands] * 2
        if len(blocks) != 1 or [a.type for a in blocks[0].arguments] != expected:
            return report(op, f"expects a combiner of one block with arguments of types {_types(expected)}")
        last = list(blocks[0].operations)[-1:]
        if not last or last[0].operation.name != YieldOp.OPERATION_NAME:
            return report(op, f"expects a combiner that ends in '{YieldOp.OPERATION_NAME}'")
        return True


class SortOp(Operation, dialect=Ktir, name="sort", traits=[Pure]):
    """Tensors sorted along a dimension by the first of them, ascending or `descending`; NaN counts as the largest value. With `stable`
    equal keys keep their order.

        %v, %i = ktir.sort %x, %n dimension = 0 {descending, stable} : tensor<64xf32>, tensor<64xi16> -> tensor<64xf32>, tensor<64xi16>
    """

    outputs: Annotated[Sequence[ext.Result[ir.RankedTensorType]], Spread(MOST_VALUES)]
    values: Annotated[Sequence[ext.Operand[ir.RankedTensorType]], Spread(MOST_VALUES)]

    required = {"dimension": ir.IntegerAttr}
    assembly = "$values `dimension` `=` integer($dimension) attr-dict `:` type($values) `->` type($outputs)"

    def check(self) -> str | None:
        return _along_fault(self)


class PairBytesOp(Operation, dialect=Ktir, name="pair_bytes", traits=[Pure]):
    """Numbers of one byte, two of which are an element of 16 bits, as matmuls of such take them along K. Along the dimension every block of
    128 numbers becomes 64 pairs: pair j has numbers j and 64 + j, so that no lane moves. Operands are floats that hold a number of one byte
    each; others are rounded to one as `arith.truncf`, or lose their fraction and all but 8 bits as `arith.fptosi`.

        %p = ktir.pair_bytes %x dimension = 1 : tensor<4x256xf16> -> tensor<4x128xvector<2xf8E4M3FN>>
    """

    pairs: ext.Result[ir.RankedTensorType]
    values: ext.Operand[ir.RankedTensorType]

    required = {"dimension": ir.IntegerAttr}
    assembly = "$values `dimension` `=` integer($dimension) attr-dict `:` type($values) `->` type($pairs)"

    def check(self) -> str | None:
        values, pairs = self.operands[0].type, self.results[0].type
        dimension = dimension_of(self.operation)
        if not 0 <= dimension < values.rank:
            return f"expects a dimension of '{values}', but got {dimension}"
        if not is_two(pairs.element_type) or str(values.element_type) not in ("f16", "bf16", "f32"):
            return f"expects f16, bf16 or f32 as pairs of numbers of one byte, but got '{pairs}' for '{values}'"
        extent = values.shape[dimension]
        shape = [extent // 2 if d == dimension else n for d, n in enumerate(values.shape)]
        if extent % (2 * LANES) or pairs.shape != shape:
            wanted = f"whole blocks of {2 * LANES} numbers along dimension {dimension} and half as many pairs"
            return f"expects {wanted}, but got '{pairs}' for '{values}'"
        return None


def dimension_of(op: Any) -> int:
    """The dimension along which an op of ours works."""
    return ir.IntegerAttr(op.attributes["dimension"]).value


def _types(types: Sequence[ir.Type]) -> str:
    return f"({', '.join(map(str, types))})"


def _along_fault(op: Any) -> str | None:
    """What is wrong with an op that works along a dimension of its operands."""
    types = [value.type for value in op.operands]
    if not types:
        return "expects at least one operand"
    if any(t.shape != types[0].shape for t in types):
        return f"expects operands of one shape, but got {_types(types)}"
    if [result.type for result in op.results] != types:
        return f"expects results of its operands' types {_types(types)}, but got {_types([r.type for r in op.results])}"
    dimension = dimension_of(op)
    if not 0 <= dimension < types[0].rank:
        return f"expects a dimension of '{types[0]}', but got {dimension}"
    return None
