"""From PyTorch to logical KTIR: `torch.compile(model, backend="spyre")`.

Importing this package registers the backends "spyre" and "ktir" with Dynamo, our packages with torch's cache artifacts, and tells the
runtime how to see that a weight is still the same.
"""

from ktir.lowering.inductor import artifacts, backend
from ktir.lowering.inductor.backend import ktir, spyre
from ktir.lowering.inductor.versions import TorchVersions
from ktir.runtime import versions

__all__ = ["ktir", "spyre"]

backend.register()
artifacts.register()
versions.install(TorchVersions())
