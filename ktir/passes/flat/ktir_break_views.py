"""The flat level: memory and generics, no op that only moves elements.

The parts, in the order in which they run, each a module beside this one: `integer_proof` finds for which arguments 32 bits hold the
integers; inputs that bodies do not use go (`unused_inputs`), and so do dims of extent 1 (`unit_dims`), copies keep the dims that they merge
(`merged_copies`), insertions are chains (`insertions`), many
rows are multiplied with all matrices that indices choose from (`chosen_matrices`), tiles look up one dim (`indirect`), long scans are cut
(`long_scans`), matmuls read pairs of bytes (`byte_products`) or multiply integers in parts (`integer_products`), products are taken by
halves (`products`), sorts, scans and foreign reductions become reductions (`decompose`), coordinates operands (`coordinates`), matmuls read
weights of one byte (`byte_weights`), other floats of one byte are f16 (`small_floats`) and other integers are i32 (`integers`),
element-wise ops run before splits of columns (`splits`), loops are split (`refine`), element-wise ops on concatenations are too
(`concatenations`), what all readers of a matmul begin with is computed once (`shared`), sums that all of them round, of whatever part, are
rounded once (`rounded`), and what is widened last is so by its readers (`widened`), rows between matmuls are one loop (`merge`), what
moves elements becomes memory (`shapes_to_memory`), as do constant matrices (`constant_matrices`), and equal ops are one. The result is held
against the rules of the level (`flat_rules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ktir.analysis.attributes.levels import require_level, set_level
from ktir.analysis.calls import calls_of, hand_down_memory, planned
from ktir.analysis.flat import require_flat
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import machine
from ktir.dialects.structured import Generic
from ktir.mlir import func, ir, is_a, linalg, operations, passmanager
from ktir.passes.flat.constant_matrices import constant_matrices_to_memory
from ktir.passes.flat.decompose import decompose
from ktir.passes.flat.epilogues.rounded import round_once
from ktir.passes.flat.epilogues.shared import compute_once
from ktir.passes.flat.epilogues.splits import epilogues_before_splits
from ktir.passes.flat.epilogues.widened import widen_where_read
from ktir.passes.flat.integers.bits import bits_by_fields
from ktir.passes.flat.integers.byte_groups import groups_of_bytes_apart
from ktir.passes.flat.integers.byte_products import products_of_bytes
from ktir.passes.flat.integers.byte_weights import weights_in_bytes
from ktir.passes.flat.integers.integer_proof import prove_integers
from ktir.passes.flat.integers.integers import integers_as_i32
from ktir.passes.flat.integers.small_floats import small_floats_as_f16
from ktir.passes.flat.long_rows import long_rows_in_parts
from ktir.passes.flat.long_scans import long_scans_in_blocks
from ktir.passes.flat.loop_order import order_contractions, order_variables
from ktir.passes.flat.loops.merge import merge_rows
from ktir.passes.flat.loops.refine import split_loops
from ktir.passes.flat.memory.chosen_matrices import multiply_with_all
from ktir.passes.flat.memory.concatenations import split_at_concatenations
from ktir.passes.flat.memory.coordinates import coordinates_as_operands
from ktir.passes.flat.memory.indirect import indices_apart
from ktir.passes.flat.memory.insertions import insertions_apart
from ktir.passes.flat.memory.merged_copies import store_unmerged
from ktir.passes.flat.memory.new_arguments import NewArguments
from ktir.passes.flat.memory.shapes_to_memory import ShapesToMemory
from ktir.passes.flat.memory.transposed_loads import load_once
from ktir.passes.flat.products import products_by_halves
from ktir.passes.flat.repeated import reduce_once
from ktir.passes.flat.unit_dims import drop_unit_dims
from ktir.passes.flat.unused_inputs import drop_unused_inputs
from ktir.pipeline import Pass


@dataclass(frozen=True)
class BreakViewsPass(Pass):
    """Leave views of memory, loads, stores, fills and generics, and nothing else.

    Expects: the logical level without named ops (`ktir-generalize`). Guarantees: the flat level. Shape ops of values go
    through pools, arguments that are added as those of role `iota` are; shape ops of loads are other views. A program without shape ops,
    coordinates and integers stays as it is. Values do not change, but where a sum is taken in several steps.
    """

    name: ClassVar[str] = "ktir-break-views"
    description: ClassVar[str] = "logical -> flat: reshapes, slices and concatenations as memory, integers as i32"
    tolerance: ClassVar[float] = 2.0**-10  # sums in another order, rounded to f16

    def allowed(self, module: ir.Module) -> float:
        """The tolerance where floats are summed; else nothing."""
        return self.tolerance if any(is_a(op, linalg.GenericOp) and Generic(op).sums_floats for op in operations(module)) else 0.0

    def run(self, module: ir.Module) -> None:
        """Rewrite each function of the module that calls nothing."""
        require_level(module, self.name, Level.LOGICAL)
        prove_integers(module)
        target = machine(module)
        for function in planned(module):
            if not calls_of(function):
                arguments = NewArguments(function)
                drop_unused_inputs(function)
                drop_unit_dims(function)
                store_unmerged(function)
                load_once(function)
                insertions_apart(function)
                reduce_once(function)
                order_variables(function)
                multiply_with_all(function, target)
                indices_apart(function, arguments)
                long_scans_in_blocks(function)
                products_of_bytes(function)
                products_by_halves(function)
                decompose(function)
                long_rows_in_parts(function, target)
                coordinates_as_operands(function, arguments)
                groups_of_bytes_apart(function)
                weights_in_bytes(function)
                bits_by_fields(function, target)
                small_floats_as_f16(function, target)
                integers_as_i32(function)
                epilogues_before_splits(function)
                split_loops(function)
                split_at_concatenations(function)
                compute_once(function)
                round_once(function)
                widen_where_read(function)
                merge_rows(function, target)
                ShapesToMemory(function, arguments).run()
                order_contractions(function)
                constant_matrices_to_memory(function, arguments)
                require_flat(function)
                arguments.finish()
                _merge_equal(function)
        hand_down_memory(module)
        set_level(module, Level.FLAT)


def _merge_equal(function: func.FuncOp) -> None:
    """One op for equal ones: what a product wants of an operand is made in front of each that does."""
    manager = passmanager.PassManager.parse("func.func(cse)", context=function.context)
    manager.enable_verifier(False)
    manager.run(function.operation)
