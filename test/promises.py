"""What is promised, how exactly, and which tests show it: the table behind docs/promises.md.

python test/promises.py        # writes the page
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ktir import registry

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "promises.md"


@dataclass(frozen=True)
class Promise:
    """`tests`: `file::function` or `file::class::function` below `test/`. `bound`: by how much a value may differ
    from what the text names, empty for not at all;
    `file::NAME` in braces stands for the value of a constant of the tests."""

    text: str
    tests: tuple[str, ...]
    bound: str = ""

    @property
    def stated(self) -> str:
        """The bound with the values of the constants that it names."""
        parts = self.bound.split("{")
        return parts[0] + "".join(f"{constant(p.partition('}')[0])}{p.partition('}')[2]}" for p in parts[1:])


def tolerances() -> str:
    """The passes that may change values, and by how much, as their classes say."""
    found: dict[float, list[str]] = {}
    for name, cls in registry.pass_classes().items():
        found.setdefault(getattr(cls, "tolerance", 0.0), []).append(f"`{name}`")
    return "; ".join(f"{' and '.join(names)} {power(of)}" for of, names in sorted(found.items()) if of)


def power(x: float) -> str:
    """A number as a power of two, where it is one."""
    exponent = len(bin(round(1 / x))) - 3 if 0 < x < 1 else -1
    return f"2^-{exponent}" if exponent > 0 and 2.0**-exponent == x else f"{x:g}"


# ------------------------------------------------------------------------------------------------------------------------------ the table

NUMBERS = (
    Promise(
        "Sums of products: the sum of a block of 64, of pairs of bytes 128, is the exact sum, rounded once to f32, whatever the data and "
        "however rows and columns are cut; blocks are added in sequence.",
        (
            "unit/arithmetic/test_block_sums.py::test_exact_sums_rounded_once",
            "unit/arithmetic/test_block_sums.py::test_no_dependence_on_the_cut",
            "unit/arithmetic/test_block_sums.py::test_blocks_are_added_in_sequence",
            "unit/emulator/machine/test_literal.py::test_sums_of_products_are_exact",
        ),
    ),
    Promise(
        "Other sums are in machine order: sticks in sequence, then lanes by a halving tree.",
        (
            "unit/arithmetic/test_numerics.py::test_sum_in_order",
            "unit/arithmetic/test_numerics.py::test_reduce_machine_is_sticks_then_tree",
        ),
    ),
    Promise(
        "Conversions between float formats round to nearest even, to DLFloat16 to nearest with ties up in magnitude.",
        (
            "unit/arithmetic/test_numerics.py::test_round_f16_equals_astype",
            "unit/arithmetic/test_numerics.py::test_bfloat16_is_rounded_as_in_pytorch",
            "unit/arithmetic/test_numerics.py::test_dl16_by_its_definition",
            "unit/arithmetic/test_numerics.py::test_every_code_of_a_format_survives",
            "unit/arithmetic/test_numerics.py::test_rounding_takes_the_nearest_value",
        ),
    ),
    Promise(
        "Elementary functions have the bits that their specification defines, on every host: whatever vector instructions NumPy uses and "
        "whichever kernels its BLAS has. So have reductions and matmuls.",
        (
            "unit/arithmetic/test_hosts.py::test_kinds_reductions_and_matmuls",
            "unit/arithmetic/test_hosts.py::test_settings_do_change_numpy",
            "unit/arithmetic/test_elementary.py::test_the_hosts_function_is_not_seen",
            "unit/emulator/machine/test_literal.py::test_coefficients_are_those_of_the_page",
        ),
    ),
    Promise(
        "Integers of every type are those of eager PyTorch: wrap, promotion, quotients, shifts, comparisons, sums. A launch whose data lie "
        "outside of the range for which its program is proved runs on the executor and writes nothing before.",
        (
            "unit/lowering/inductor/test_integers.py::test_edge_values_on_the_default_engine",
            "unit/lowering/inductor/test_integers.py::test_edge_values",
            "unit/lowering/inductor/test_integers.py::test_what_32_bits_do_not_hold_runs_on_the_executor",
            "unit/lowering/inductor/test_integers.py::test_a_launch_out_of_range_says_so_and_writes_nothing",
            "unit/lowering/inductor/test_faults.py::test_data_out_of_range",
        ),
    ),
    Promise(
        "Conversions between integers and floats, those out of range too, are those of eager PyTorch.",
        (
            "unit/lowering/inductor/test_integers.py::test_conversions_of_large_integers_round_as_eager_does",
            "unit/lowering/inductor/test_integers.py::test_conversions_of_floats_beyond_the_integers_are_those_of_eager",
        ),
    ),
    Promise(
        "One value, one meaning: a float16 or bfloat16 result of the user's program is one number for all who read it; what jumps "
        "(comparisons, places of extremes, rounding) reads the rounded number, as do conversions to a wider type. The one reader of "
        "a value may see it before it is rounded if it works element by element and stays in the type ([where](spec/numerics.md)).",
        (
            "unit/lowering/inductor/test_one_value.py::test_what_jumps_reads_the_number_that_is_returned",
            "unit/lowering/inductor/test_one_value.py::test_two_readers_see_the_rounded_value",
            "unit/lowering/inductor/test_one_value.py::test_what_widens_reads_what_the_type_holds",
            "campaign/test_functions.py::test_a_value_that_is_returned_is_that_of_its_readers",
        ),
    ),
    Promise(
        "What only moves elements keeps their bits, those of signalling NaN too: views, also of computed integers as floats and back, "
        "gathers, scatters, joins, transfers to the device and back.",
        (
            "unit/lowering/inductor/test_moved_bits.py::test_of_floats",
            "unit/lowering/inductor/test_moved_bits.py::test_of_computed_integers",
            "unit/lowering/inductor/test_moved_bits.py::test_of_what_is_written_in_part",
            "unit/lowering/inductor/test_views.py::test_views",
            "unit/lowering/inductor/test_lookups.py::test_values",
            "unit/runtime/test_transfer.py::test_there_and_back_keeps_bits",
            "unit/runtime/test_integers.py::test_bits_survive",
        ),
    ),
)

ENGINES = (
    Promise(
        "From the tiled level on all levels of a program have the same bits: tiled, allocated, instruction stream.",
        (
            "unit/checking/test_levels.py::test_levels_agree",
            "campaign/test_graphs.py::test_graph",
            "models/test_stream.py::test_llama",
            "models/test_stream.py::test_families",
        ),
    ),
    Promise(
        "The three machines have the same bits: tape, step, and the literal machine, which shares nothing with them and is the definition.",
        (
            "unit/emulator/machine/test_literal.py::test_it_shares_nothing",
            "unit/emulator/machine/test_literal.py::test_every_kind_on_any_bits",
            "unit/emulator/machine/test_literal.py::test_every_reduction_on_any_bits",
            "unit/emulator/machine/test_machine_executors.py::test_literal_machine_on_random_programs",
            "campaign/test_literal.py::test_graph_on_any_bits",
        ),
    ),
    Promise(
        "A stream says what its allocated KTIR says, as far as a comparison of the two can show; a changed stream is reported, or computes "
        "the same.",
        (
            "unit/checking/stream/test_stream.py::test_nothing_is_found_in_a_compiled_stream",
            "unit/checking/stream/test_stream.py::test_it_has_its_own_facts",
            "campaign/test_mutants.py::test_mutants",
            "campaign/test_mutants.py::test_many_mutants",
        ),
    ),
    Promise(
        "A compilation is deterministic: the same program, the same package.",
        ("unit/runtime/test_cache.py::test_compilation_is_deterministic",),
    ),
    Promise(
        "Columns, rows and numbers that a matmul makes are read as such by what spreads them; the stream is checked for it.",
        (
            "unit/lowering/inductor/test_broadcast_readers.py::test_what_is_spread_has_eagers_value",
            "unit/lowering/inductor/test_broadcast_readers.py::test_the_check_of_a_stream_sees_sums_that_are_spread",
        ),
    ),
)

BOUNDED = (
    Promise(
        "An elementary function of one operand, in f32, against the exact value.",
        (
            "unit/arithmetic/test_elementary.py::test_nearly_always_the_nearest_value",
            "unit/arithmetic/test_elementary.py::test_every_f16_and_many_f32",
        ),
        "{unit/arithmetic/test_elementary.py::LARGEST_ERROR} units of the last place",
    ),
    Promise(
        "A power or an arc tangent of two operands, in f32, against PyTorch in float64.",
        ("unit/arithmetic/test_elementary.py::test_two_operands",),
        "{unit/arithmetic/test_elementary.py::LARGEST_ERROR_OF_TWO} units of the last place",
    ),
    Promise(
        "A result of floating-point operators against eager PyTorch on float64.",
        (
            "campaign/test_functions.py::test_eager_is_within_the_bounds",
            "campaign/test_functions.py::test_function",
            "campaign/test_functions.py::test_thousands",
        ),
        "by element: each operator's error from its operands' errors, computing it in float32 and rounding it once "
        "(`test/campaign/function_model.py`)",
    ),
    Promise(
        "A sample of PyTorch's operator database against eager PyTorch, in its own or the next wider type.",
        ("campaign/test_opinfo.py::test_wrong_elements_are_found", "campaign/test_opinfo.py::test_all"),
        "by element: the tolerance that the database states for the operator, else that of `torch.testing`; where digits cancel, "
        "1.5 times the largest error of eager PyTorch",
    ),
    Promise(
        "A model of the zoo in float16 or bfloat16 against PyTorch on float64.",
        ("models/test_zoo.py::test_float16", "models/test_zoo.py::test_bfloat16"),
        "{models/zoo.py::WORSE} times the error of eager PyTorch, largest and root mean square, or one rounding of the largest value",
    ),
    Promise(
        "A prefill and a step of the families of language models in bfloat16, on the chip alone, against PyTorch on float64.",
        ("models/test_stream.py::test_bfloat16",),
        "{models/test_stream.py::WORSE} times the error of eager PyTorch: of logits the largest and the root mean square one, of what "
        "caches hold the latter",
    ),
    Promise(
        "A model of the zoo in float32 against PyTorch on float64.",
        ("models/test_zoo.py::test_float32",),
        "{models/zoo.py::CLOSE} of the largest value, or of 1",
    ),
    Promise(
        "A program after a pass that changes how floats are summed, against the program before it; integers, and programs without such "
        "sums, are the same.",
        (
            "unit/checking/test_levels.py::test_levels_agree",
            "unit/checking/test_levels.py::test_a_wrong_pass_is_caught",
            "unit/checking/test_levels.py::test_a_wrong_element_is_caught",
        ),
        f"by element: twice what four runs show whose sums are off by what another order may make of them, and by {tolerances()}, or a "
        "unit of the last place more (`ktir/checking/bounds.py`)",
    ),
)

CONDUCT = (
    Promise(
        "A launch uses what the tensors hold then, however they have changed.",
        (
            "unit/lowering/inductor/test_weights.py::test_a_changed_weight_is_arranged_again",
            "unit/lowering/inductor/test_weights.py::test_what_a_program_writes_is_read_anew",
            "unit/runtime/test_forms.py::test_any_element_counts",
            "unit/runtime/test_forms.py::test_what_a_launch_reads_stays_as_it_is",
        ),
    ),
    Promise(
        "What the chip refuses is a program of its own on the executor, with one warning, or an error if asked; the ops around it stay.",
        (
            "unit/lowering/inductor/test_apart.py::test_the_rest_stays_on_the_chip",
            "unit/lowering/inductor/test_apart.py::test_refusals_are_errors_if_asked",
            "unit/lowering/inductor/test_refusals.py::test_refused_by_name",
        ),
    ),
    Promise(
        "A fault of the compiler or of a launch is a warning with a reproducer, and the right result; memory is mutated once.",
        (
            "unit/lowering/inductor/test_faults.py::test_a_fault_of_the_compiler",
            "unit/lowering/inductor/test_faults.py::test_a_fault_of_the_translation",
            "unit/lowering/inductor/test_faults.py::test_a_fault_at_a_launch",
        ),
    ),
    Promise(
        "Results have the strides (of dims of more than one element) and aliases of eager PyTorch.",
        (
            "unit/lowering/inductor/test_strides.py::test_strides",
            "unit/lowering/inductor/test_engine.py::TestMutation::test_input_is_returned",
        ),
    ),
    Promise(
        "Python numbers that change between calls are arguments of one program.",
        (
            "unit/lowering/inductor/test_numbers.py::test_integers",
            "unit/lowering/inductor/test_numbers.py::test_floats",
            "unit/lowering/inductor/test_numbers.py::test_twenty_floats_in_a_row",
        ),
    ),
    Promise(
        "Caches heal, serve what they were asked for only, and write nothing outside of their folder, `KTIR_CACHE_DIR`.",
        (
            "unit/runtime/test_cache.py::test_a_damaged_entry_heals",
            "unit/runtime/test_cache.py::test_without_a_place_packages_are_in_memory",
            "unit/lowering/inductor/test_caches.py::test_nothing_is_written_outside_the_cache",
            "unit/lowering/inductor/test_caches.py::test_other_options_miss",
            "unit/lowering/inductor/test_caches.py::test_a_program_names_the_lines_of_who_compiles_it",
        ),
    ),
    Promise(
        "A damaged package is an error: no crash, no hang, no wrong launch.",
        (
            "unit/package/test_package.py::test_every_flipped_byte_and_every_truncation",
            "campaign/test_packages.py::test_damaged_packages",
            "campaign/test_packages.py::test_two_thousand_packages_in_workers",
        ),
    ),
    Promise(
        "Models of the zoo run in float16 and bfloat16 wholly on the chip.",
        ("models/test_zoo.py::test_float16", "models/test_zoo.py::test_bfloat16"),
    ),
    Promise(
        "A test that claims the chip fails where the executor or PyTorch ran instead.",
        ("unit/checking/test_chip.py::test_without_the_chip", "unit/checking/test_chip.py::test_the_fixture_fails_the_test_itself"),
    ),
)

SECTIONS = {
    "Numbers, bit for bit": NUMBERS,
    "Levels and machines, bit for bit": ENGINES,
    "Within a bound": BOUNDED,
    "Conduct": CONDUCT,
}


# ------------------------------------------------------------------------------------------------------------------------------- the page


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / "test" / file).read_text())


def constant(place: str) -> str:
    """The value of `file::NAME` as its file writes it."""
    file, _, name = place.partition("::")
    for node in _tree(file).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.unparse(node.value)
    raise KeyError(f"there is no constant {place}")


def function_of(place: str) -> ast.FunctionDef | None:
    """The function that `file::test` or `file::class::test` names, if there is one."""
    file, *names = place.split("::")
    if not (ROOT / "test" / file).exists():
        return None
    found: ast.AST | None = _tree(file)
    for name in names:
        inside = ast.iter_child_nodes(found) if found is not None else ()
        found = next((n for n in inside if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name), None)
    return found if isinstance(found, ast.FunctionDef) else None


def is_long(function: ast.FunctionDef) -> bool:
    """Whether a test is left out of `make test`, or some of its cases."""
    return any("pytest.mark.long" in ast.unparse(d) for d in function.decorator_list)


_HEAD = """# What is promised, and which tests show it

Written by `python test/promises.py`; a test holds that it is up to date and that each test exists. Paths are below `test/`. Tests with a
star, or some of their cases, run in `make test-long` only, all others in `make test`.
What the numbers are is specified in [numerics](spec/numerics.md) and [elementary functions](spec/elementary.md).

Not promised:

* That an input of `binary_cross_entropy` outside of 0 to 1 is an error; it is computed as it is.
* Which of several equal values `topk`, `kthvalue` and a `sort` that is not stable name; `argmax`, `max`, `min` and a stable `sort` name
  eager's.
* Eager's values where its kernels differ between vectors and single numbers: remainders whose quotient overflows (NaN in vectors; here what
  C gives), the sign of zeros of `softshrink`.
* Strides of results of `rrelu`, which PyTorch traces as another operator.
* Eager's results of `_scaled_mm` in FP8: numbers beyond 448 are NaN there and 448 here, and others may be neighbours of the nearest value
  there; here they are the nearest. A scale that is infinite or zero is multiplied as such; it makes NaN or +0 of some there.
* The values of the kernels that eager PyTorch has for whole layers of `nn.TransformerEncoder`: a layer is computed as eager PyTorch does
  with `torch.backends.mha.set_fastpath_enabled(False)`. A row whose keys are all masked is finite so, and NaN in those kernels.
* A bound for a whole model of your own: bounds are per operator, and errors add up as in eager PyTorch. What they come to is measured as
  for the zoo: the differences of the compiled model and of eager PyTorch from `copy.deepcopy(model).double()` on the same inputs, side by
  side.
* NaN in a row that a mask of positions, causal or a window, hides infinite or NaN keys and values from: whole blocks of keys that no row
  sees are left out, as PyTorch's own kernels of attention do.
* The same bits of sums of floats with other numbers of cores, other targets, other batch sizes, and of `engine="ktir"` and the chip: sums
  are divided and ordered otherwise, within the last bound. What has no such sums has the same bits. Host and device are the same chip, and
  have the same bits.
"""


def page() -> str:
    """The page as Markdown."""
    return _HEAD + "".join(f"\n## {title}\n\n" + "\n".join(_table(promises)) + "\n" for title, promises in SECTIONS.items())


def _table(promises: tuple[Promise, ...]) -> Iterator[str]:
    bounded = any(p.bound for p in promises)
    heads = ["promise", "bound", "tests"] if bounded else ["promise", "tests"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for p in promises:
        cells = [p.text, p.stated, _cited(p.tests)] if bounded else [p.text, _cited(p.tests)]
        yield f"| {' | '.join(cells)} |"


def _cited(tests: tuple[str, ...]) -> str:
    """The tests, each file named once."""
    by_file: dict[str, list[str]] = {}
    for place in tests:
        file, _, name = place.partition("::")
        function = function_of(place)
        star = "\\*" if function is not None and is_long(function) else ""
        by_file.setdefault(file, []).append(f"`{name}`{star}")
    return "; ".join(f"`{file}`: {', '.join(names)}" for file, names in by_file.items())


if __name__ == "__main__":
    PAGE.write_text(page())
