"""linalg ops that MLIR itself brings to simpler ones: named ops to `linalg.generic`, aggregates to several ops."""

from __future__ import annotations

from ktir.emulator.reference.compile.compiler import compile_block
from ktir.emulator.reference.compile.op_reader import Numbering, OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.dialects.linalg import structured_op
from ktir.emulator.reference.ops.maps import IndexMap
from ktir.emulator.reference.record.recorder import Recorder
from ktir.mlir import ir, passmanager


def _alone(op: OpReader, prologue: str = "") -> tuple[ir.Module, ir.Operation]:
    """A module in which a function of the operands of `op` returns the results of a copy of it; and the function."""
    module = ir.Module.parse(prologue or "module {}", context=op.op.context)
    with op.op.context, op.op.location, ir.InsertionPoint(module.body):
        types = [v.type for v in op.op.operands]
        results = [v.type for v in op.op.results]
        function = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get("expanded"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, results)),
            },
            regions=1,
        )
        block = ir.Block.create_at_start(function.regions[0], types)
        with ir.InsertionPoint(block):
            copy = op.op.clone()
            for i, argument in enumerate(block.arguments):
                copy.operation.operands[i] = argument
            ir.Operation.create("func.return", operands=list(copy.results))
    return module, function


def _run(op: OpReader, module: ir.Module, pipeline: str) -> None:
    with op.op.context:
        try:
            passmanager.PassManager.parse(pipeline).run(module.operation)
        except ir.MLIRError:
            raise op.unsupported("has no expansion") from None


_CONVOLUTIONS = (
    "linalg.conv_1d",
    "linalg.conv_1d_ncw_fcw",
    "linalg.conv_1d_nwc_wcf",
    "linalg.conv_2d",
    "linalg.conv_2d_nchw_fchw",
    "linalg.conv_2d_nchw_fchw_q",
    "linalg.conv_2d_ngchw_fgchw",
    "linalg.conv_2d_ngchw_gfchw",
    "linalg.conv_2d_ngchw_gfchw_q",
    "linalg.conv_2d_nhwc_fhwc",
    "linalg.conv_2d_nhwc_fhwc_q",
    "linalg.conv_2d_nhwc_hwcf",
    "linalg.conv_2d_nhwc_hwcf_q",
    "linalg.conv_2d_nhwgc_gfhwc",
    "linalg.conv_2d_nhwgc_gfhwc_q",
    "linalg.conv_3d",
    "linalg.conv_3d_ncdhw_fcdhw",
    "linalg.conv_3d_ndhwc_dhwcf",
    "linalg.conv_3d_ndhwc_dhwcf_q",
    "linalg.depthwise_conv_1d_ncw_cw",
    "linalg.depthwise_conv_1d_nwc_wc",
    "linalg.depthwise_conv_1d_nwc_wcm",
    "linalg.depthwise_conv_2d_nchw_chw",
    "linalg.depthwise_conv_2d_nhwc_hwc",
    "linalg.depthwise_conv_2d_nhwc_hwc_q",
    "linalg.depthwise_conv_2d_nhwc_hwcm",
    "linalg.depthwise_conv_2d_nhwc_hwcm_q",
    "linalg.depthwise_conv_3d_ncdhw_cdhw",
    "linalg.depthwise_conv_3d_ndhwc_dhwc",
    "linalg.depthwise_conv_3d_ndhwc_dhwcm",
)
_POOLINGS = (
    "linalg.pooling_nchw_max",
    "linalg.pooling_nchw_sum",
    "linalg.pooling_ncw_max",
    "linalg.pooling_ncw_sum",
    "linalg.pooling_ndhwc_max",
    "linalg.pooling_ndhwc_min",
    "linalg.pooling_ndhwc_sum",
    "linalg.pooling_nhwc_max",
    "linalg.pooling_nhwc_max_unsigned",
    "linalg.pooling_nhwc_min",
    "linalg.pooling_nhwc_min_unsigned",
    "linalg.pooling_nhwc_sum",
    "linalg.pooling_nwc_max",
    "linalg.pooling_nwc_max_unsigned",
    "linalg.pooling_nwc_min",
    "linalg.pooling_nwc_min_unsigned",
    "linalg.pooling_nwc_sum",
)
_OTHERS = (
    "linalg.batch_mmt4d",
    "linalg.contract",
    "linalg.elementwise",
    "linalg.fill_rng_2d",
    "linalg.quantized_batch_matmul",
    "linalg.quantized_matmul",
)


@executes(*_CONVOLUTIONS, *_POOLINGS, *_OTHERS)
def _generalized(op: OpReader) -> Action:
    """Maps and loops as `linalg-generalize-named-ops` finds them; the body stands in the op already."""
    module, function = _alone(op)
    _run(op, module, "builtin.module(func.func(linalg-generalize-named-ops))")
    generic = next((o.operation for o in function.regions[0].blocks[0].operations if o.operation.name == "linalg.generic"), None)
    if generic is None:
        raise op.unsupported("has no form as linalg.generic")
    maps = [IndexMap.of(ir.AffineMapAttr(m).value) for m in ir.ArrayAttr(generic.attributes["indexing_maps"])]
    reduced = ["reduction" in str(i) for i in ir.ArrayAttr(generic.attributes["iterator_types"])]
    body = generic if op.where.op == "linalg.elementwise" else None
    inputs = len(op.operands) - len(op.results)
    return structured_op(op, maps, reduced, inputs, named=op.where.op in (*_CONVOLUTIONS, *_OTHERS), body=body)


_SEQUENCE = """module attributes {{transform.with_named_sequence}} {{
transform.named_sequence @__transform_main(%root: !transform.any_op) {{
  %op = transform.structured.match ops{{["{name}"]}} in %root : (!transform.any_op) -> !{type}
  {expansion}
  transform.yield
}} }}"""
_ANY = "transform.any_op"


def _lowered(name: str, *results: str) -> str:
    handles = ", ".join(f"%r{i}" for i in range(len(results)))
    types = ", ".join(f'!transform.op<"{r}">' for r in results)
    return f'{handles} = transform.structured.lower_{name} %op : (!transform.op<"linalg.{name}">) -> ({types})'


_EXPANSIONS: dict[str, tuple[str, str]] = {
    "linalg.softmax": (_ANY, "%d = transform.structured.decompose_interface %op : (!transform.any_op) -> !transform.any_op"),
    "linalg.pack": ('transform.op<"linalg.pack">', _lowered("pack", "tensor.pad", "tensor.expand_shape", "linalg.transpose")),
    "linalg.unpack": (
        'transform.op<"linalg.unpack">',
        _lowered("unpack", "tensor.empty", "linalg.transpose", "tensor.collapse_shape", "tensor.extract_slice", "linalg.copy"),
    ),
    "linalg.winograd_filter_transform": (
        _ANY,
        "%d = transform.structured.decompose_winograd_op %op : (!transform.any_op) -> (!transform.any_op)",
    ),
}
for _name in ("linalg.winograd_input_transform", "linalg.winograd_output_transform"):
    _EXPANSIONS[_name] = _EXPANSIONS["linalg.winograd_filter_transform"]


@executes(*_EXPANSIONS)
def _expanded(op: OpReader) -> Action:
    """The ops that MLIR makes of it, compiled as a function of its operands."""
    type_, expansion = _EXPANSIONS[op.where.op]
    module, function = _alone(op, _SEQUENCE.format(name=op.where.op, type=type_, expansion=expansion))
    _run(op, module, "builtin.module(transform-interpreter)")
    block = function.regions[0].blocks[0]
    if any(o.operation.name == op.where.op for o in block.operations):
        raise op.unsupported("has no expansion")
    numbering = Numbering()
    body = compile_block(block, numbering)
    slots, operands, results, where = len(numbering.slots), op.operands, op.results, op.where

    def action(rec: Recorder) -> None:
        outer, values = rec.values, [rec.get(slot) for slot in operands]
        rec.values = [None] * slots
        rec.set_all(body.arguments, values)
        found = rec.run(body)
        rec.values, rec.where = outer, where
        rec.set_all(results, found)

    return action
