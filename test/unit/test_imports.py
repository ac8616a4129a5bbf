"""Imports inside ktir/ point one way (docs/design.md, section 2); imports inside functions count too."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "ktir"

BELOW = {  # layer -> layers it may import; "core" is the modules directly in ktir/
    "core": set(),
    "arithmetic": {"core"},
    "assembly": {"core", "arithmetic"},
    "isa": {"core", "arithmetic"},
    "package": {"core", "arithmetic", "assembly", "isa"},
    "dialects": {"core", "arithmetic", "assembly", "isa"},
    "cost": {"core", "arithmetic", "assembly", "isa", "dialects"},
    "analysis": {"core", "arithmetic", "assembly", "isa", "package", "dialects", "cost"},
    "passes": {"core", "arithmetic", "assembly", "isa", "package", "dialects", "cost", "analysis"},
    "lowering": {"core", "arithmetic", "assembly", "isa", "package", "dialects", "cost", "analysis", "passes"},
    "emulator": {"core", "arithmetic", "assembly", "isa", "package", "dialects"},
    "runtime": {"core", "arithmetic", "assembly", "isa", "package", "dialects", "emulator"},
}
# The edge to torch: what it compiles it also launches.
BELOW["lowering/inductor"] = BELOW["lowering"] | {"lowering", "runtime"}
BELOW["device"] = BELOW["lowering/inductor"] | {"lowering/inductor", "emulator"}
BELOW["checking"] = BELOW["device"]
BELOW["tools"] = BELOW["checking"] | {"checking", "device"}

TORCH = ("lowering/inductor/", "device/")  # the only places that import torch
TORCH_MLIR = ("mlir.py",)  # the only place that imports torch_mlir


def layer_of(name: tuple[str, ...]) -> str:
    """Layer of a dotted name that starts with `ktir`."""
    if name[1:3] == ("lowering", "inductor"):
        return "lowering/inductor"
    return name[1] if len(name) > 1 and (ROOT / name[1]).is_dir() else "core"


def imported(path: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    """Every name that a file imports, absolute, with its line."""
    package = ("ktir", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split(".")), node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield (*base, alias.name), node.lineno


def test_layers_import_only_what_is_below_them() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where == "__init__.py":
            continue  # the front door: names for type checkers, loaded at first use (see below)
        layer = layer_of(("ktir", *path.relative_to(ROOT).parts))
        for name, line in imported(path):
            if name[0] == "torch" and not where.startswith(TORCH):
                wrong.append(f"ktir/{where}:{line}: imports torch")
            if name[0] == "torch_mlir" and where not in TORCH_MLIR:
                wrong.append(f"ktir/{where}:{line}: imports torch_mlir")
            if name[0] == "ktir" and layer_of(name) not in BELOW[layer] | {layer}:
                wrong.append(f"ktir/{where}:{line}: {layer} imports {'.'.join(name)}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_a_place_in_the_order() -> None:
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and any(p.rglob("*.py"))}
    assert folders <= set(BELOW)


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent).stdout


def test_ktir_opt_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    source = tmp_path / "x.mlir"
    source.write_text("func.func @f(%a: index) { %0 = ktdp.get_compute_tile_id : index return }\n")
    code = f"import sys; from ktir.tools.ktir_opt import main; main([{str(source)!r}, '--canonicalize'])"
    out = run_python(code + "; print('torch' in sys.modules, 'numpy' in sys.modules)")
    assert out.splitlines()[-1] == "False False"


def test_the_package_itself_loads_nothing() -> None:
    out = run_python("import sys, ktir; print([m for m in sys.modules if m.startswith('ktir.') or m == 'numpy'])")
    assert out.strip() == "[]"


def test_the_front_door_loads_nothing() -> None:
    loaded = run_python("import sys, ktir; print(sorted(m for m in sys.modules if m.startswith(('ktir.', 'numpy', 'torch'))))")
    assert loaded.strip() == "[]"
