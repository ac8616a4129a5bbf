"""From PyTorch to logical KTIR: `torch.compile(model, backend="spyre")`.

Importing this package registers the backends "spyre" and "ktir" with Dynamo and our packages with torch's cache artifacts.
"""

from ktir.lowering.inductor import artifacts, backend
from ktir.lowering.inductor.backend import ktir, spyre

__all__ = ["ktir", "spyre"]

backend.register()
artifacts.register()
