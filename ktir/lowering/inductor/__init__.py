"""From PyTorch to logical KTIR: `torch.compile(model, backend="spyre")`.

Importing this package registers the backends "spyre" and "ktir" with Dynamo and our packages with torch's cache artifacts.
"""

from ktir.lowering.inductor import artifacts, backend

backend.register()
artifacts.register()
