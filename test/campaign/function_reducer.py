"""A failing program made smaller: fewer outputs, fewer nodes, inputs instead of what is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from campaign.function_call import Number
from campaign.function_draws import Node
from campaign.function_programs import Program, needed
from campaign.function_run import run


def reduced(program: Program, engine: str = "spyre", fails: Callable[[Program], str] | None = None) -> Program:
    """The smallest program found that has the same outcome."""
    test = fails or (lambda p: run(p, engine)["outcome"])
    wanted = test(program)
    if wanted == "right":
        return program
    while True:
        for smaller in _smaller(program):
            if test(smaller) == wanted:
                program = smaller
                break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, those with much less first."""
    if len(program.outputs) > 1:
        for k in program.outputs:
            yield needed(Program(program.nodes, [k], program.note))
        for k in program.outputs:
            yield needed(Program(program.nodes, [o for o in program.outputs if o != k], program.note))
    mutated = program.mutated.values()
    for k, node in enumerate(program.nodes):
        if node.call is not None and k not in program.outputs and k not in mutated:
            yield _first_inputs(program, k)
    for k, node in enumerate(program.nodes):  # what reads an output reads an operand of the same kind instead
        for o in () if node.call is None or k in mutated else node.call.operands:
            if not isinstance(o, Number) and program.nodes[o].shape == node.shape and program.nodes[o].dtype == node.dtype:
                yield from _without(program, k, o)


def _first_inputs(program: Program, k: int) -> Program:
    """Node `k` is an input that holds what eager PyTorch computed."""
    nodes = [Node(n.eager) if i == k else n for i, n in enumerate(program.nodes)]
    return needed(Program(nodes, program.outputs, program.note))


def _without(program: Program, k: int, operand: int) -> Iterator[Program]:
    """Readers of node `k` read its operand; what eager PyTorch gives is computed anew."""
    from campaign.function_call import Call, apply

    nodes: list[Node] = []
    for i, node in enumerate(program.nodes):
        if node.call is None or i == k:
            nodes.append(node)
            continue
        operands = tuple(operand if o == k and not isinstance(o, Number) else o for o in node.call.operands)
        call = Call(**{**vars(node.call), "operands": operands})
        try:
            eager = apply(call.text, [o.value if isinstance(o, Number) else nodes[o].eager.clone() for o in operands])
        except Exception:
            return
        if eager.shape != node.shape or eager.dtype != node.dtype:
            return
        nodes.append(Node(eager, call))
    outputs = list(dict.fromkeys(operand if o == k else o for o in program.outputs))
    if all(nodes[o].call is not None for o in outputs):
        yield needed(Program(nodes, outputs, program.note))
