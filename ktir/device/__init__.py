"""The PyTorch device "spyre": tensors on an emulated card, their operators, and `torch.compile` on them.

The entry point `torch.backends` of the distribution calls `autoload` at `import torch`; a program may call `register` instead. Nothing else
is imported here, since this stands in the way of every `import torch`.
"""

import torch  # noqa: F401  calls the entry point, whose modules are then whole: whichever of them was asked for comes after this one
