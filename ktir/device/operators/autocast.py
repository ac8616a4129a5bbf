"""`torch.autocast("spyre")`: which operators compute in the lower type, which in float32, which in the widest of their operands, and which
are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

_LOWER = """
    mm bmm matmul linear addmm addmv addr addbmm baddbmm mv prelu chain_matmul linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell lstm.input lstm.data gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data
    scaled_dot_product_attention conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution _convolution
"""
_FLOAT32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus
    layer_norm native_layer_norm group_norm rms_norm norm.Scalar cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss
    nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
    soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp softmax.int
    log_softmax.int cumprod cumsum prod prod.dim_int sum sum.dim_IntList
"""
_UNSAFE = "binary_cross_entropy"
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
_KEY = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("AutocastPrivateUse1"))


def register() -> list[torch.library.Library]:
    """Give every operator of the lists its rule; all others compute in the types that they get."""
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    rules = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    for names, rule in ((_LOWER, _lower), (_FLOAT32, _float32), (_WIDEST, _widest), (_UNSAFE, _unsafe)):
        for name in names.split():
            base, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, base), overload or "default")
            rules.impl(op, functools.partial(_call, op, rule))
    return [rest, rules]


def _lower(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.get_autocast_dtype("spyre")


def _float32(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.float32


def _widest(tensors: list[torch.Tensor]) -> torch.dtype:
    return functools.reduce(torch.promote_types, (t.dtype for t in tensors), torch.get_autocast_dtype("spyre"))


def _unsafe(tensors: list[torch.Tensor]) -> torch.dtype:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: its logarithms leave the range of the lower "
        "type. torch.nn.functional.binary_cross_entropy_with_logits and torch.nn.BCEWithLogitsLoss, without a sigmoid before them, are safe"
    )


def _call(op: Any, rule: Callable[[list[torch.Tensor]], torch.dtype], *args: Any, **kwargs: Any) -> Any:
    eligible = [x for x in pytree.tree_leaves((args, kwargs)) if _is_eligible(x)]
    dtype = rule(eligible)
    with torch._C._ExcludeDispatchKeyGuard(_KEY):
        args, kwargs = pytree.tree_map(lambda x: x.to(dtype) if _is_eligible(x) and x.dtype != dtype else x, (args, kwargs))
        return op(*args, **kwargs)


def _is_eligible(value: Any) -> bool:
    """Whether autocast touches it. Its keys tell: tensors of a graph that is traced may say that they are on the host."""
    tensor = isinstance(value, torch.Tensor) and torch._C._dispatch_keys(value).has(torch._C.DispatchKey.AutogradPrivateUse1)
    return tensor and value.is_floating_point() and value.dtype != torch.float64
