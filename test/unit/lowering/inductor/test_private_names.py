"""The private names of torch that the adapter touches: a new torch release shows here what moved."""

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

import ktir
from ktir.lowering.inductor.recorder import Recorder

FOLDER = Path(ktir.__file__).parent / "lowering" / "inductor"
EMITTER = FOLDER.parent / "region_to_ktir"

NAMES = """
torch._inductor.ir ComputedBuffer Buffer Layout ConcatKernel MutationLayoutSHOULDREMOVE NonOwningLayout
torch._inductor.ir _CollectiveKernel InvokeSubgraph Conditional WhileLoop MultiOutput
torch._inductor.ir DynamicScalar AssertScalar DynamicSliceSize DynamicSelectStorageOffset
torch._inductor.ir ComputedBuffer.get_default_sizes_body MutationLayoutSHOULDREMOVE.get_buffer
torch._inductor.ir IRNode.is_realized_node MutableBox BaseView ReinterpretView Pointwise.make_loader
torch._inductor.lowering lowerings user_lowerings make_pointwise make_reduction transform_args to_dtype full
torch._inductor.lowering clone fallback_handler pointwise_cat pow_native max_pool_checks _max_pool_with_offsets
torch._inductor.lowering empty_strided
torch._inductor.ir ExternKernel.require_contiguous ExternKernel.realize_input ExternKernel.copy_input Pointwise.create
torch._inductor.inductor_prims _flatten_index _flattened_index_to_nd
torch._inductor.codegen.common register_backend_for_device init_backend_registration device_codegens custom_backend_passes
torch._inductor.codegen.common custom_backend_codegen_configs BackendFeature.REDUCE_TO_SINGLE_ELEMENT
torch._inductor.codegen.common BackendFeature.PREFER_STORE_LOOP_ORDER BackendFeature.SCAN BackendFeature.SORT
torch._inductor.codegen.common BackendFeature.TUPLE_REDUCTION BackendFeature.MASKED_SCATTER_WITH_INDEX BackendFeature.BUCKETIZE
torch._inductor.codegen.wrapper PythonWrapperCodegen.define_kernel PythonWrapperCodegen.writeline
torch._inductor.codegen.wrapper PythonWrapperCodegen.next_kernel_suffix
torch._inductor.compile_fx compile_fx compile_fx_inner
torch._inductor.codegen.wrapper SubgraphPythonWrapperCodegen PythonWrapperCodegen.make_allocation PythonWrapperCodegen.create
torch._subclasses FakeTensor
torch._inductor standalone_compile
torch._inductor.fx_passes.reinplace compute_overlapping_tensors reinplace_inplaceable_ops_core inplaceable_ops
torch._inductor.fx_utils get_node_storage
torch._inductor.fx_passes.post_grad get_node_storage remove_noop_ops
torch._inductor.ir FallbackKernel.create TensorBox.realize MutationOutput NoneLayout
torch._library.utils zip_schema
torch._inductor.custom_graph_pass CustomGraphModulePass CustomGraphPass CustomSchedulerPass get_custom_graph_passes
torch._inductor.decomposition select_decomp_table
torch._inductor.graph GraphLowering.try_get_buffer GraphLowering.get_buffer GraphLowering.get_output_names
torch._inductor.dtype_propagation DtypePropagationOpsHandler
torch._inductor.dependencies WeakDep
torch._inductor.scheduler BaseSchedulerNode.add_fake_dep BaseSchedulerNode.get_buffer_names
torch.fx._lazy_graph_module _LazyGraphModule.force_recompile
torch._inductor.scheduler BaseSchedulerNode.get_nodes BaseSchedulerNode.get_name BaseSchedulerNode.mark_run
torch._inductor.scheduler BaseScheduling.group_fn BaseScheduling.can_fuse_vertical BaseScheduling.can_fuse_horizontal
torch._inductor.scheduler BaseScheduling.codegen_node BaseScheduling.flush BaseScheduling.codegen_sync BaseScheduling.codegen_comment
torch._inductor.scheduler NopKernelSchedulerNode BaseScheduling.free_buffers_in_scheduler BaseScheduling.get_backend_features
torch._inductor.utils get_kernel_metadata sympy_product
torch._inductor.virtualized V ops V.get_ops_handler
torch._inductor.config split_reductions unroll_reductions_threshold comprehensive_padding allow_buffer_reuse inplace_buffers
torch._inductor.config mtia.disable_welford_reduction pattern_matcher online_softmax cpp_wrapper fx_wrapper _pre_fusion_custom_pass
torch._inductor.config triton.decompose_sort_ops fallback_random graph_partition trace joint_custom_pre_pass
torch._dynamo.backends.registry register_backend _BACKENDS _COMPILER_FNS
torch._dynamo.config allow_rnn recompile_limit accumulated_recompile_limit fail_on_recompile_limit_hit
torch._dynamo.eval_frame get_compiler_fn
torch._dynamo graph_bytecode_inputs graph_bytecode_inputs.index_to_bytecode_constructor
torch._dynamo.exc BackendCompilerFailed TorchDynamoException Unsupported
torch._dynamo.symbolic_convert InstructionTranslatorBase.log_graph_break
torch._dynamo.variables torch.tracing_state_functions script_object script_object.TorchScriptObjectVariable.is_matching_cls
torch.fx._symbolic_trace is_fx_symbolic_tracing _is_fx_tracing_flag
torch._C._dynamo guards guards._reinterpret_tensor
torch.backends.mha get_fastpath_enabled
torch.nn.modules.transformer _detect_is_causal_mask
torch._logging._internal trace_structured
torch.compiler._cache CacheArtifact CacheArtifactFactory.register CacheArtifactFactory._artifact_types
torch.compiler._cache CacheArtifactManager.record_artifact
torch._decomp core_aten_decompositions get_decompositions
torch._decomp.decompositions col2im native_dropout upsample_compute_output_size one_layer_lstm
torch._C DispatchKey
torch._ops HigherOrderOperator
torch._refs native_layer_norm
torch._inductor.ops_handler ReductionType
torch.fx.experimental.proxy_tensor disable_proxy_modes_tracing get_proxy_mode
torch._guards detect_fake_mode TracingContext TracingContext.extract_stack
torch._subclasses.fake_tensor FakeTensorMode unset_fake_temporarily DataDependentOutputException
torch._prims_common ELEMENTWISE_TYPE_PROMOTION_KIND elementwise_dtypes
torch.utils._ordered_set OrderedSet
"""
FULL = [(line.split()[0], name) for line in NAMES.strip().splitlines() for name in line.split()[1:]]


def _get(module: str, name: str) -> Any:
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_torch_is_the_pinned_one() -> None:
    assert torch.__version__.startswith("2.13.")


@pytest.mark.parametrize(("module", "name"), FULL)
def test_name_exists(module: str, name: str) -> None:
    _get(module, name)


def test_operators_of_the_recorder_are_known() -> None:
    handler = _get("torch._inductor.ops_handler", "OpsHandler")
    own = [n for n, f in vars(Recorder).items() if not n.startswith("_") and callable(f)]
    assert len(own) > 15
    for op in own:
        assert list(inspect.signature(getattr(handler, op)).parameters) == list(inspect.signature(getattr(Recorder, op)).parameters), op
    assert list(inspect.signature(handler.reduction).parameters) == ["self", "dtype", "src_dtype", "reduction_type", "value"]


def test_every_import_is_listed() -> None:
    listed = {(m, n.split(".")[0]) for m, n in FULL}
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torch._"):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    assert (node.module, alias.name) in listed or any(m == whole for m, _ in listed), f"{path.name}: {whole}"


def test_who_imports_inductor() -> None:
    users = sorted(p.name for p in FOLDER.rglob("*.py") if "torch._inductor" in _imports(p))
    assert set(users) == {
        "adapter.py",
        "devices.py",
        "lowerings.py",
        "nodes.py",
        "in_place.py",
        "scheduling.py",
        "calls.py",
        "window_dot.py",
        "window_taps.py",
    }


def test_the_emitter_needs_no_torch() -> None:
    used = {"emit", "region"}
    while more := {m for name in used for m in _siblings(name)} - used:
        used |= more
    assert {"translate", "indices", "scalars"} <= used
    for name in used:
        assert "torch" not in _imports(EMITTER / f"{name}.py").split()


def _siblings(name: str) -> list[str]:
    package = "ktir.lowering.region_to_ktir"
    imported = _imports(EMITTER / f"{name}.py").split()
    modules = [m.removeprefix(f"{package}.") for m in imported if m.startswith(f"{package}.")]
    return modules + [m for m in imported if package in imported and (EMITTER / f"{m}.py").exists()]


def _imports(path: Path) -> str:
    found = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, (ast.Import, ast.ImportFrom))]
    return " ".join([n.module or "" for n in found if isinstance(n, ast.ImportFrom)] + [a.name for n in found for a in n.names])
