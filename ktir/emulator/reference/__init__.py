"""The KTIR executor: runs KTIR of every level on NumPy arrays, exactly and fast.

    report = execute(module_or_text, args=[x, y])

Three stages, each cached: *compile* turns MLIR into plain data and closures (`compiler`, `dialects/`), *record* runs them once on
addresses and shapes and checks every access (`recorder`, `memory`, `scratchpad`, `checks`), *launch* replays a tape of NumPy calls
(`tape`, `pointwise`, `structured`). A new op needs one function in `dialects/`, registered with `executes`.
"""

from ktir.emulator.reference.executor import Report, Scratch, execute

__all__ = ["Report", "Scratch", "execute"]
