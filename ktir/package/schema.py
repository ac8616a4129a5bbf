"""The form of `launch_spec.json` as a JSON schema, and what its fields mean.

The arguments of the spec are those of the program, in order: same name, role, sticks and element size. `host` says which elements of
which host tensor a device tensor holds: with the host tensor's elements numbered as they lie in its memory, the element of coordinates
x is number `offset` + sum of `strides`[i] * x[i], for x within `size`. A host tensor may be used by several arguments, an output too,
each a part of it (as the parts of a concatenation); elements that no output holds keep what they had. Pools and iotas have no `host`.

The elements of `host`, in row-major order of `host.size`, are those of the *logical* tensor of `layout.size`, in its row-major order.
The device tensor has `device_size`, row-major; its last dimension are the 64 lanes of an entry. Device dimension d walks logical
dimension m: the first one of more than one element whose row-major stride s[m] divides `stride_map`[d]. Its coordinate p stands for
`stride_map`[d] / s[m] * p along m, and the logical coordinate along m is the sum over the device dimensions that walk m. A `stride_map`
of -1 walks nothing: there, only coordinate 0 holds elements. A position whose logical coordinates lie outside of `layout.size`, or that
has another coordinate where nothing is walked, is *padding*: zero in inputs when the program starts, whatever the program leaves in
outputs, never read back.

On the way in floats are rounded to the device type, to nearest and ties to even, integers become i32, truth values 0 or 1. Where
`range` is given, every element must lie in `low` to `high`, or the program does not apply to these arguments and must not run; without
it integers must fit into 32 bits. `bits` is the width of the program's integers: a host array of as many bits gives its bits as signed
numbers. `spare` stands for integers that 32 bits do not hold, of an output that the program writes in parts: elements that come back as
`spare` keep what they had. On the way out f16 and f32 go to the host's float type, i32 to its integer type, the low bits where it is
narrower, and whether it is not zero to bool. `pool_size` is the bytes of all pools together.

`hosts`, where it is given, are the tensors of the caller, by the number that `host.arg` names: element type, shape, and the strides, in
elements, with which they lie in memory for `host` to number them. A launch refuses tensors of another type or shape; of one that lies
otherwise the elements are brought into that order, and back where they are written.
"""

from __future__ import annotations

from typing import Any

from ktir.isa.program import ROLES
from ktir.package.launch_spec import ARRANGEMENTS, MAX_DIMS, VERSION
from ktir.target import BY_DTYPE, BY_PUBLISHED


def _integers(low: int) -> dict[str, Any]:
    return {"type": "array", "maxItems": MAX_DIMS, "items": {"type": "integer", "minimum": low, "maximum": 2**48}}


def _object(required: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": fields}


_NUMBER = {"type": "integer", "minimum": 0, "maximum": 2**48}
_WIDE = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_LAYOUT = _object(
    "size device_size stride_map device_dtype element_arrangement pad",
    size=_integers(1),
    device_size=_integers(1) | {"minItems": 1},
    stride_map=_integers(-1) | {"minItems": 1},
    device_dtype={"enum": list(BY_PUBLISHED)},
    element_arrangement={"enum": list(ARRANGEMENTS)},
    pad={"type": "string"},
)
_ARGUMENT = _object(
    "arg_index name role shape dtype layout",
    arg_index=_NUMBER,
    name={"type": "string"},
    role={"enum": list(ROLES)},
    shape=_integers(1),
    dtype={"enum": list(BY_DTYPE)},
    layout=_LAYOUT,
    host=_object(
        "arg offset size strides",
        arg={"type": "integer", "minimum": 0, "maximum": 2**16 - 1},
        offset=_NUMBER,
        size=_integers(1),
        strides=_integers(0),
    ),
    range=_object("low high", low=_WIDE, high=_WIDE, bits={"enum": [8, 16, 32, 64]}, spare=_WIDE),
) | {
    "if": {"properties": {"role": {"enum": ["pool", "iota"]}}},
    "then": {"not": {"required": ["host"]}},
    "else": {"required": ["host"]},
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        "version kernel_name pool_size args",
        version={"const": VERSION},
        kernel_name={"type": "string"},
        pool_size=_NUMBER,
        args={"type": "array", "items": _ARGUMENT},
        hosts={
            "type": "array",
            "items": _object("element size strides", element={"type": "string"}, size=_integers(0), strides=_integers(0)),
        },
    ),
}
