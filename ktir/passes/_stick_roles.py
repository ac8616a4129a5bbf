"""Which dimension of each tensor lies in the stick: unification over all ops of a logical function."""

from __future__ import annotations

from ktir.diagnostics import Unsupported, location_names, location_text
from ktir.dialects.structured import Generic
from ktir.mlir import func, ir


def refuse(op: ir.Operation, text: str) -> Unsupported:
    names = location_names(op.location)
    origin = f" ({', '.join(names)})" if names else ""
    return Unsupported(f"'{op.name}' op{origin} {text}", location_text(op.location))


def shape_of(value: ir.Value) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def dtype_of(value: ir.Value) -> str:
    return str(ir.RankedTensorType(value.type).element_type)


def _groups(op: ir.Operation) -> list[list[int]]:
    """Reassociation of a collapse_shape or expand_shape: groups of the larger shape's dims."""
    return [[ir.IntegerAttr(i).value for i in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])]


RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


def source_load(value: ir.Value) -> ir.Operation | None:
    """The load that a value is, possibly reshaped; the host transfer does such reshapes, so they bind no roles."""
    owner = owner_of(value)
    while owner is not None and owner.name in RESHAPES:
        owner = owner_of(owner.operands[0])
    return owner if owner is not None and owner.name == "ktdp.load" else None


def owner_of(value: ir.Value) -> ir.Operation | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation if hasattr(owner, "operation") else owner


class StickRoles:
    """Union-find over the dimensions of all tensors; each class is in the stick (C) or a row (R)."""

    def __init__(self, function: func.FuncOp) -> None:
        self.parent: dict[tuple[ir.Value, int], tuple[ir.Value, int]] = {}
        self.role: dict[tuple[ir.Value, int], str] = {}
        ops = [o.operation for o in function.regions[0].blocks[0].operations]
        contractions = []
        for op in ops:
            if op.name == "linalg.generic":
                g = Generic(op)
                if g.is_contraction:
                    contractions.append(g)
                    self._contraction(g)
                else:
                    self._loops(g)
            elif op.name in RESHAPES and source_load(op.results[0]) is None:
                self._reshape(op)
        for g in contractions:
            self._second_operand(g)
        # tensors of more dimensions first: a vector is a row or a column depending on what it meets
        results = [(r, op) for op in ops for r in op.results if isinstance(r.type, ir.RankedTensorType)]
        for result, op in sorted(results, key=lambda r: -len(shape_of(r[0]))):
            self._default(result, op)

    def find(self, key: tuple[ir.Value, int]) -> tuple[ir.Value, int]:
        root = self.parent.setdefault(key, key)
        if root != key:
            root = self.parent[key] = self.find(root)
        return root

    def union(self, a: tuple[ir.Value, int], b: tuple[ir.Value, int], op: ir.Operation) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        role = self.role.get(a)
        self.parent[a] = b
        if role:
            self.label(b, role, op)

    def label(self, key: tuple[ir.Value, int], role: str, op: ir.Operation) -> None:
        root = self.find(key)
        if self.role.setdefault(root, role) != role:
            shape = "x".join(map(str, shape_of(key[0])))
            raise refuse(
                op,
                f"needs dimension {key[1]} of tensor<{shape}x{dtype_of(key[0])}> both in the stick and as a row (a relayout), which is not "
                "supported; the nearest supported form reduces and multiplies along the same dimension everywhere",
            )

    def of(self, value: ir.Value, dim: int) -> str:
        return self.role[self.find((value, dim))]

    def rows(self, value: ir.Value) -> list[int]:
        return [d for d in range(len(shape_of(value))) if self.of(value, d) == "R"]

    def stick(self, value: ir.Value) -> int | None:
        return next((d for d in range(len(shape_of(value))) if self.of(value, d) == "C"), None)

    def _loops(self, g: Generic) -> None:
        result = g.op.results[0]
        of_loop: dict[int, tuple[ir.Value, int]] = {}
        for operand, value in enumerate([*g.inputs, result]):
            for d in range(len(g.maps[operand].results)):
                loop = g.loop_of(operand, d)
                if loop is None:
                    raise refuse(g.op, "expects projected permutation maps on the logical level")
                if loop in of_loop:
                    self.union((value, d), of_loop[loop], g.op)
                of_loop[loop] = (value, d)
        if g.is_pointwise:
            return
        if g.combiner is None:
            raise refuse(g.op, "expects a reduction by addf, maximumf or minimumf")
        if g.iterators.count("reduction") != 1:
            raise refuse(g.op, "reduces several dimensions at once, which is not supported; reduce one after the other")
        for loop, kind in enumerate(g.iterators):
            self.label(of_loop[loop], "C" if kind == "reduction" else "R", g.op)

    def _contraction(self, g: Generic) -> None:
        result = g.op.results[0]
        k = g.iterators.index("reduction")
        where = {g.loop_of(2, d): (result, d) for d in range(len(shape_of(result)))}
        for d in range(len(shape_of(g.inputs[0]))):
            loop = g.loop_of(0, d)
            if loop == k:
                self.label((g.inputs[0], d), "C", g.op)
            elif loop in where:
                self.union((g.inputs[0], d), where[loop], g.op)
                self.label(where[loop], "R", g.op)
        rows = {g.loop_of(0, d) for d in range(len(shape_of(g.inputs[0])))}
        for loop, key in where.items():
            if loop not in rows:
                self.label(key, "C", g.op)

    def _second_operand(self, g: Generic) -> None:
        """The second operand may lie with N or with K in the stick; the machine transposes the second form while loading weights."""
        b = g.inputs[1]
        k = g.iterators.index("reduction")
        dims = range(len(shape_of(b)))
        of_k = [d for d in dims if g.loop_of(1, d) == k]
        of_n = [d for d in dims if g.loop_of(1, d) != k]
        if len(of_n) > 1 or len(of_k) != 1:
            raise refuse(g.op, "expects a matrix as second operand; batched matmul is not supported")
        transposed = self.role.get(self.find((b, of_k[0]))) == "C" or any(self.role.get(self.find((b, d))) == "R" for d in of_n)
        self.label((b, of_k[0]), "C" if transposed else "R", g.op)
        for d in of_n:
            self.label((b, d), "R" if transposed else "C", g.op)

    def _reshape(self, op: ir.Operation) -> None:
        large, small = (op.operands[0], op.results[0])
        if op.name == "tensor.expand_shape":
            large, small = small, large
        for d, group in enumerate(_groups(op)):
            for i in group:
                self.union((large, i), (small, d), op)

    def _default(self, value: ir.Value, op: ir.Operation) -> None:
        roots = [self.find((value, d)) for d in range(len(shape_of(value)))]
        free = [r for r in roots if r not in self.role]
        if free and not any(self.role.get(r) == "C" for r in roots):
            self.role[roots[-1] if roots[-1] in free else free[-1]] = "C"
        for r in roots:
            self.role.setdefault(r, "R")
        if sum(self.role[r] == "C" for r in roots) > 1:
            shape = "x".join(map(str, shape_of(value)))
            raise refuse(
                op, f"puts two dimensions of tensor<{shape}x{dtype_of(value)}> into the stick (a reshape across it), which is not supported"
            )
