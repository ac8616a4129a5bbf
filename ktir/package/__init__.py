"""The package on disk: a compiled program, how to launch it, and where its instructions come from.

    spyrecode.json        manifest: plans with the public command names, and the size and hash of every other file
    program.bin           the instruction stream (`ktir.isa.binary.encoding`)
    launch_spec.json      arguments: role, host view, device layout (`LaunchSpec`)
    debug.json            sources: KTIR op and location by the id that instructions carry
    allocated.ktir.mlir   the program at the last KTIR level, for people; may be missing
    target.toml           the machine that it was compiled for; missing: the datasheet's

`read` checks everything and executes nothing.
"""

from ktir.package.errors import PackageError
from ktir.package.files import Package, content_hash, read
from ktir.package.launch_spec import HostTensor, HostView, LaunchArgument, LaunchSpec, PublishedLayout, ValueRange

__all__ = [
    "HostTensor",
    "HostView",
    "LaunchArgument",
    "LaunchSpec",
    "Package",
    "PackageError",
    "PublishedLayout",
    "ValueRange",
    "content_hash",
    "read",
]
