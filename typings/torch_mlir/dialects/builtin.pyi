# What is used of the dialect; a name that is not here is an error. The wheel has no type information: all else is Any.
from torch_mlir.ir import OpView

class ModuleOp(OpView): ...
