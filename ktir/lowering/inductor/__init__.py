"""From PyTorch to logical KTIR: `torch.compile(model, backend="spyre")`.

Importing this package registers the backends "spyre" and "ktir" with Dynamo, our packages with torch's cache artifacts, and tells the
runtime how torch counts the writes to a weight.
"""

from ktir.lowering.inductor import artifacts, backend
from ktir.lowering.inductor.backend import ktir, spyre
from ktir.lowering.inductor.running.stamps import TorchStamps
from ktir.runtime import stamps

__all__ = ["ktir", "spyre"]

backend.register()
artifacts.register()
stamps.install(TorchStamps())
