"""The `ktdp` ops that name memory, and what can be told of a view."""

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated, Any

from ktir.assembly.parameters import DYNAMIC
from ktir.dialects._foundation import affine
from ktir.dialects._foundation.base import Operation, Pure, Spread
from ktir.dialects._ktdp.types import SUCCESSORS, Ktdp, MemorySpaceAttr, SpyreMemorySpaceAttr
from ktir.mlir import ext, ir

MOST_PARTITIONS = 64


class ConstructMemoryViewOp(Operation, dialect=Ktdp, name="construct_memory_view", traits=[Pure]):
    """Memory seen as a tensor: element i lies at `offset + sum(i[d] * strides[d])`, in elements. Nothing is allocated or moved.

    `coordinate_set` says which coordinates the view owns; its symbols stand for the dynamic sizes, in order. A view with a
    dynamic size clips what goes beyond it; those that we make say so with the unit attribute `masked`. A masked view clips to its
    coordinate set: sticks of 64 lanes whose last one is not full are cut by `-64 * d_i - d_last + c >= 0`.

        %v = ktdp.construct_memory_view %x, sizes: [57, %n], strides: [64, 1]
            {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<57x?xf16>
    """

    result: ext.Result[ir.MemRefType]
    offset: ext.Operand[ir.IndexType]
    dynamic_sizes: Sequence[ext.Operand[ir.IndexType]]
    dynamic_strides: Sequence[ext.Operand[ir.IndexType]]

    required = {
        "static_sizes": ir.DenseI64ArrayAttr,
        "static_strides": ir.DenseI64ArrayAttr,
        "coordinate_set": ir.IntegerSetAttr,
        "memory_space": (MemorySpaceAttr, SpyreMemorySpaceAttr),
    }
    assembly = (
        "$offset `,` `sizes:` mixed($dynamic_sizes, $static_sizes) `,` `strides:` mixed($dynamic_strides, $static_strides)"
        " attr-dict full_set($coordinate_set, $static_sizes) `:` type($result)"
    )

    @property
    def sizes(self) -> list[int | ir.Value]:
        """One entry per dim: an int, or the value of a dynamic size."""
        return self._mixed("static_sizes", 0)

    @property
    def strides(self) -> list[int | ir.Value]:
        """One entry per dim, in elements: an int, or the value of a dynamic stride."""
        return self._mixed("static_strides", self._segments()[1])

    @property
    def memory_space(self) -> str:
        """`global` or `ct_local`; old kinds without a successor by their own name."""
        kind = self.attributes["memory_space"].kind
        return str(SUCCESSORS.get(kind, kind))

    @property
    def ct_id(self) -> int | None:
        """The tile whose scratchpad this is; None: the executing tile's, or global memory."""
        number = self.attributes["memory_space"].ct_id
        return None if number < 0 else number

    @property
    def masked(self) -> bool:
        """Whether accesses beyond the view are clipped rather than forbidden."""
        return "masked" in self.attributes or DYNAMIC in ir.DenseI64ArrayAttr(self.attributes["static_sizes"])

    def clips(self, dim: int) -> bool:
        """Whether accesses beyond a dim are clipped: a dynamic one of a masked view, and any of one whose sizes are constants."""
        sizes = list(ir.DenseI64ArrayAttr(self.attributes["static_sizes"]))
        return self.masked and (DYNAMIC not in sizes or sizes[dim] == DYNAMIC)

    @property
    def element_type(self) -> ir.Type:
        return ir.MemRefType(self.results[0].type).element_type

    def _segments(self) -> list[int]:
        return list(ir.DenseI32ArrayAttr(self.attributes["operandSegmentSizes"]))

    def _mixed(self, name: str, skip: int) -> list[int | ir.Value]:
        operands = self.operands
        at = 1 + skip
        entries: list[int | ir.Value] = []
        for entry in ir.DenseI64ArrayAttr(self.attributes[name]):
            if entry == DYNAMIC:
                entries.append(operands[at])
                at += 1
            else:
                entries.append(entry)
        return entries

    def check(self) -> str | None:
        attributes = self.attributes
        sizes = list(ir.DenseI64ArrayAttr(attributes["static_sizes"]))
        strides = list(ir.DenseI64ArrayAttr(attributes["static_strides"]))
        view = self.results[0].type
        shape = view.shape
        if len(sizes) != len(strides):
            return f"static_sizes and static_strides must have equal length, but got {len(sizes)} and {len(strides)}"
        dynamic = sizes.count(DYNAMIC)
        for what, entries, count in zip(("size", "stride"), (sizes, strides), self._segments()[1:], strict=True):
            if entries.count(DYNAMIC) != count:
                return f"number of dynamic {what} operands does not match kDynamic entries in static_{what}s"
        if len(shape) != len(sizes):
            return f"result memref rank does not match sizes/strides length, but got '{view}' for {len(sizes)} sizes"
        if sizes != shape:
            for i, (size, dim) in enumerate(zip(sizes, shape, strict=True)):
                if size < 0 and size != DYNAMIC:
                    return f"expects non-negative sizes, but got {size}"
                if size != DYNAMIC and not view.is_dynamic_dim(i) and size != dim:
                    return f"expects size {size} in dim {i} of the result, but got '{view}'"
        dims, symbols, box = affine.set_facts(attributes["coordinate_set"])
        if dims != len(sizes):
            return f"expects a coordinate set of {len(sizes)} dims, but got {dims}"
        if symbols not in (0, dynamic):
            return f"expects a coordinate set with one symbol per dynamic size, but got {symbols} for {dynamic}"
        if box is not None and any(extent != size for extent, size in zip(box[1], sizes, strict=True) if size != DYNAMIC):
            return f"expects a coordinate set of extents {sizes_text(sizes)}, the view's sizes, but got {list(box[1])}"
        space = view.memory_space
        if space is not None and space != attributes["memory_space"] and _meaning(space) != _meaning(attributes["memory_space"]):
            return "expects the memory space of its result type to be the one in its attribute"
        if self.masked:
            lanes, other = affine.lane_bounds(attributes["coordinate_set"])
            if other is not None or len(lanes) > 1:
                return (
                    "expects a masked view's coordinate set to be a box, or one cut at a lane by a single '-64 * d_i - d_last + c >= 0', "
                    f"but got '{attributes['coordinate_set']}'"
                )
            if not dynamic and not lanes:
                return "can only be masked with a dynamic size, or with a coordinate set that is cut at a lane"
        return None


def sizes_text(sizes: Sequence[int]) -> str:
    """Sizes as in a message; `?`: dynamic."""
    return f"[{', '.join('?' if size == DYNAMIC else str(size) for size in sizes)}]"


def _meaning(space: ir.Attribute) -> object:
    """What a memory space says, the same for its old and its new spelling."""
    if isinstance(space, MemorySpaceAttr | SpyreMemorySpaceAttr):
        return SUCCESSORS.get(space.kind, space.kind), space.ct_id
    return space


class ConstructDistributedMemoryViewOp(Operation, dialect=Ktdp, name="construct_distributed_memory_view", traits=[Pure]):
    """One tensor whose parts lie in several places: a coordinate belongs to the partition in whose `coordinate_set` it is.

    Partitions are disjoint or exact replicas of each other.

        %d = ktdp.construct_distributed_memory_view(%a, %b : memref<32x64xf16>, memref<32x64xf16>) : memref<64x64xf16>
    """

    result: ext.Result[ir.MemRefType]
    partitions: Annotated[Sequence[ext.Operand[ir.MemRefType]], Spread(MOST_PARTITIONS)]

    assembly = "`(` ($partitions `:` type($partitions))? `)` attr-dict `:` type($result)"

    def check(self) -> str | None:
        result = self.results[0].type
        boxes: list[tuple[int, Any]] = []
        for i, partition in enumerate(self.operands):
            if partition.type.element_type != result.element_type:
                return f"all input memrefs must have the same element type as the result, but got '{partition.type}' for '{result}'"
            if len(partition.type.shape) != len(result.shape):
                return f"all input memrefs must have the same rank as the result, but got '{partition.type}' for '{result}'"
            if (view := memory_view(partition)) is not None and (box := affine.set_box(view.attributes["coordinate_set"])):
                boxes.append((i, box))
        for (i, a), (j, b) in combinations(boxes, 2):
            if a != b and affine.overlap(a, b):
                return f"expects partitions that are disjoint or replicas, but #{i} and #{j} own {_box(a)} and {_box(b)}"
        return None

    def doubt(self) -> str | None:
        result = self.results[0].type
        views = [memory_view(partition) for partition in self.operands]
        boxes = [affine.set_box(view.attributes["coordinate_set"]) for view in views if view]
        known = [box for box in boxes if box]
        if not known or len(known) != len(self.operands):
            return None
        for i, size in enumerate(result.shape):
            reached = max(low[i] + extent[i] for low, extent in known)
            if not result.is_dynamic_dim(i) and reached != size:
                return f"has partitions that reach up to {reached} in dim {i} of size {size}"
        return None


def _box(box: affine.Box) -> str:
    return " x ".join(f"[{low}, {low + extent})" for low, extent in zip(*box, strict=True))


def memory_view(value: ir.Value) -> ConstructMemoryViewOp | None:
    """The op that makes `value`, if it is a plain view."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != ConstructMemoryViewOp.OPERATION_NAME:
        return None
    return owner.opview


def may_be_exceeded(base: ir.Value, dim: int) -> bool:
    """Whether accesses beyond a dim of `base` are clipped, by itself or by a part of it."""
    owner = base.owner
    if not isinstance(owner, ir.Block) and owner.name == ConstructDistributedMemoryViewOp.OPERATION_NAME:
        return any(may_be_exceeded(part, dim) for part in owner.operands)
    view = memory_view(base)
    return view is not None and view.clips(dim)
