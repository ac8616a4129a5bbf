"""Cells of recurrent networks: for devices other than the host PyTorch asks for each as one operator, with its gradients."""

from __future__ import annotations

import torch

Optional = torch.Tensor | None


def lstm_cell(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, cx: torch.Tensor, input_bias: Optional = None, hidden_bias: Optional = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """New hidden state, new cell state, and the gates for the way back."""
    i, f, g, o = _sum(input_gates, hidden_gates, input_bias, hidden_bias).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


def lstm_cell_backward(
    grad_hy: Optional, grad_cy: Optional, cx: torch.Tensor, cy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[Optional, Optional, Optional]:
    """Gradients of the gates before their functions, of the cell state and of a bias."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    tanh = cy.tanh()
    out = torch.zeros_like(cy) if grad_hy is None else grad_hy
    cell = out * o * (1 - tanh * tanh)
    cell = cell if grad_cy is None else cell + grad_cy
    gates = torch.cat((cell * g * i * (1 - i), cell * cx * f * (1 - f), cell * i * (1 - g * g), out * tanh * o * (1 - o)), 1)
    return gates, cell * f, gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, hx: torch.Tensor, input_bias: Optional = None, hidden_bias: Optional = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """New hidden state, and what the way back needs."""
    given, held = _sum(input_gates, input_bias), _sum(hidden_gates, hidden_bias)
    (ir, iz, i), (hr, hz, h) = given.chunk(3, 1), held.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (i + r * h).tanh()
    return (hx - n) * z + n, torch.cat((r, z, n, hx, h), 1)


def gru_cell_backward(grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool) -> tuple[Optional, ...]:
    """Gradients of the gates of both sides before their functions, of the hidden state and of the biases."""
    r, z, n, hx, h = workspace.chunk(5, 1)
    new = grad_hy * (1 - z) * (1 - n * n)
    both = (new * h * r * (1 - r), grad_hy * (hx - n) * z * (1 - z))
    given, held = torch.cat((*both, new), 1), torch.cat((*both, new * r), 1)
    return given, held, grad_hy * z, given.sum(0) if has_bias else None, held.sum(0) if has_bias else None


def _sum(*terms: Optional) -> torch.Tensor:
    first, *rest = (t for t in terms if t is not None)
    for term in rest:
        first = first + term
    return first


CELLS = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
"""The kernels by name."""
