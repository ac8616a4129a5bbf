"""Changes of what words name: descriptors, bounds, tables, groups, kernels, arguments, the launch spec, debug data."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

from campaign.changes_of_words import BODY, MOVES, Change, near, pick_kernel, place

from ktir.isa.descriptor import LEVELS, PADS, Bound, Descriptor
from ktir.isa.program import ROLES, Kernel, Program
from ktir.package import LaunchArgument, LaunchSpec, Package


def descriptor(*names: str) -> Change:
    """A field of a descriptor."""

    def change(p: Package, r: random.Random) -> bool:
        kernel = pick_kernel(p, r)
        if not kernel.descriptors:
            return False
        i = r.randrange(len(kernel.descriptors))
        d, name = kernel.descriptors[i], r.choice(names)
        kernel.descriptors[i] = replace(d, **{name: _part(d, name, kernel, p.program, r)})
        return True

    return change


def _part(d: Descriptor, name: str, kernel: Kernel, program: Program, r: random.Random) -> Any:
    old = getattr(d, name)
    match name:
        case "space":
            return "lx" if old == "ddr" else "ddr"
        case "element_bytes":
            return 6 - old
        case "extent" | "stride" | "level_step":
            k = r.randrange(len(old))
            if name == "level_step":
                k = r.choice([i for i, s in enumerate(old) if s] or [r.randrange(LEVELS)])
            return (*old[:k], near(r, old[k], 1) if name == "extent" else _stepped(d, old[k], r), *old[k + 1 :])
        case "arg":
            return r.randrange(len(program.arguments))
        case "core_table":
            return r.choice([None, *range(len(kernel.tables))])
        case "buffers":
            return r.choice([1, 2, 3, 4])
        case "rotate_levels":
            return r.choice([0, 1, 2, 3, 4, 6])
        case "splat":
            return not old
        case "lane_stride":
            return r.choice([None, _stepped(d, d.lane_step, r)])
        case "pad":
            return r.choice(PADS)
    return _stepped(d, old, r) if name == "corelet_step" else abs(_stepped(d, old, r))


def _stepped(d: Descriptor, old: int, r: random.Random) -> int:
    """Another address or step, most often a multiple of the unit."""
    unit = d.unit if r.random() < 0.9 else 1
    return near(r, old // unit, -999) * unit


def bound(p: Package, r: random.Random) -> bool:
    """A bound of a descriptor: gone, new, or with another field."""
    kernel = pick_kernel(p, r)
    if not kernel.descriptors:
        return False
    bounded = [i for i, d in enumerate(kernel.descriptors) if d.bounds]
    i = r.choice(bounded) if bounded and r.random() < 0.8 else r.randrange(len(kernel.descriptors))
    d = kernel.descriptors[i]
    bounds = list(d.bounds)
    if not bounds or (len(bounds) < 2 and r.random() < 0.1):
        bounds.append(Bound(r.randrange(70), dim=r.randrange(len(d.extent)), dim_step=r.choice([1, 64]), lanes=r.random() < 0.5))
    else:
        k = r.randrange(len(bounds))
        b, name = bounds[k], r.choice([f.name for f in fields(Bound)])
        value: Any = {
            "table": lambda: r.choice([None, *range(len(kernel.tables))]),
            "dim": lambda: r.choice([None, *range(len(d.extent))]),
            "level": lambda: r.choice([None, 0, 1, 2]),
            "lanes": lambda: not b.lanes,
        }.get(name, lambda: near(r, getattr(b, name)))()
        bounds[k] = replace(b, **{name: value})
        if r.random() < 0.1:
            del bounds[k]
    kernel.descriptors[i] = replace(d, bounds=tuple(bounds))
    return True


def table(p: Package, r: random.Random) -> bool:
    """An entry of a core table."""
    kernel = pick_kernel(p, r)
    if not kernel.tables:
        return False
    number = r.randrange(len(kernel.tables))
    row, unit = kernel.tables[number], next((d.unit for d in kernel.descriptors if d.core_table == number), 1)
    i = r.randrange(len(row))
    row[i] = r.choice(row) if r.random() < 0.5 else near(r, row[i] // unit) * unit
    return True


def group(p: Package, r: random.Random) -> bool:
    """A member of a multicast group has another leader."""
    kernel = pick_kernel(p, r)
    if not kernel.groups:
        return False
    row = r.choice(kernel.groups)
    row[r.randrange(len(row))] = r.randrange(len(row))
    return True


def kernel_order(p: Package, r: random.Random) -> bool:
    """Kernels run in another order, or one does not run."""
    kernels = p.program.kernels
    if len(kernels) < 2:
        return False
    i = r.randrange(len(kernels) - 1)
    if r.random() < 0.5:
        del kernels[i]
    else:
        kernels[i], kernels[i + 1] = kernels[i + 1], kernels[i]
    return True


def argument(p: Package, r: random.Random) -> bool:
    """An argument of the program and of the launch spec alike: its role or size."""
    i = r.randrange(len(p.program.arguments))
    a = p.program.arguments[i]
    if r.random() < 0.5:
        p.program.arguments[i] = replace(a, sticks=near(r, a.sticks))
    else:
        role = r.choice(ROLES)
        p.program.arguments[i] = replace(a, role=role)
        p.launch_spec = _with(p.launch_spec, i, replace(p.launch_spec.args[i], role=role))
    return True


def _with(spec: LaunchSpec, i: int, a: LaunchArgument) -> LaunchSpec:
    return replace(spec, args=(*spec.args[:i], a, *spec.args[i + 1 :]))


def launch(p: Package, r: random.Random) -> bool:
    """A launch argument: host view or layout."""
    i = r.randrange(len(p.launch_spec.args))
    a = p.launch_spec.args[i]
    if a.host is not None and r.random() < 0.6:
        host = a.host
        name = r.choice(["arg", "offset", "strides", "size"])
        if name in ("arg", "offset"):
            host = replace(host, **{name: near(r, getattr(host, name))})
        elif not host.size:
            return False
        else:
            values = list(getattr(host, name))
            k = r.randrange(len(values))
            values[k] = near(r, values[k], 1)
            host = replace(host, **{name: tuple(values)})
        a = replace(a, host=host)
    else:
        name = r.choice(["size", "device_size", "stride_map"])
        values = list(getattr(a.layout, name))
        if not values:
            return False
        k, j = r.randrange(len(values)), r.randrange(len(values))
        values[k], values[j] = values[j], values[k]
        if k == j:
            values[k] = near(r, values[k], 1)
        a = replace(a, layout=replace(a.layout, **{name: tuple(values)}))
    p.launch_spec = _with(p.launch_spec, i, a)
    return True


def debug(p: Package, r: random.Random) -> bool:
    """A word names another op, or an op has another name or place."""
    sources = p.program.sources
    if len(sources) < 3:
        return False
    i, j = r.sample(range(1, len(sources)), 2)
    way = r.randrange(3)
    if way == 0:
        sources[i], sources[j] = sources[j], sources[i]
    elif way == 1:
        sources[i] = replace(sources[i], op=sources[j].op)
    else:
        found = place(p, r, (*MOVES, *BODY))
        if not found:
            return False
        _, words, k = found
        words[k] = replace(words[k], source=j)
    return True
