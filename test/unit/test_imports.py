"""Imports inside ktir/ point one way (docs/design.md), and nothing in it is large.

Imports inside functions and those for type checkers count too.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
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
BELOW["explore"] = BELOW["lowering"] | {"lowering", "emulator"}
# The edge to torch: what it compiles it also launches.
BELOW["lowering/inductor"] = BELOW["lowering"] | {"lowering", "runtime", "explore"}
BELOW["editor"] = BELOW["passes"] - {"package"}
BELOW["lang"] = BELOW["lowering"] | {"lowering", "emulator", "runtime"}
BELOW["device"] = BELOW["lowering/inductor"] | {"lowering/inductor", "emulator"}
BELOW["library"] = BELOW["device"] | {"device", "lang"}
BELOW["checking"] = BELOW["device"] | {"device"}
BELOW["enablement"] = BELOW["checking"] | {"checking"}
BELOW["vllm"] = BELOW["device"] | {"device"}
BELOW["perf"] = BELOW["lowering/inductor"] | {"lowering/inductor"}
BELOW["tools"] = BELOW["enablement"] | {"enablement", "editor", "explore", "perf"}

TORCH = (
    "lowering/inductor/",
    "device/",
    "library/",
    "checking/suites/",
    "vllm/",
    "explore/",
    "enablement/",
    "perf/",
)  # the only places that import torch
TORCH_MLIR = ("mlir.py",)  # the only place that imports torch_mlir


MOST_FILES = 15  # Python files of a folder
MOST_LINES = {"file": 500, "class": 250, "function": 60}


@cache
def files() -> dict[str, Path]:
    """Every Python file by the name of its module."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("ktir", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def layer_of(name: tuple[str, ...]) -> str:
    """Layer of a dotted name that starts with `ktir`."""
    if name[1:3] == ("lowering", "inductor"):
        return "lowering/inductor"
    return name[1] if len(name) > 1 and (ROOT / name[1]).is_dir() else "core"


def loads(node: ast.Call) -> bool:
    """Whether a call imports a module that it names: as good as an import statement."""
    function = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
    return function == "import_module" and isinstance(node.args[0], ast.Constant)


@cache
def imported(path: Path) -> list[tuple[tuple[str, ...], int]]:
    """Every name that a file imports, absolute, with its line."""
    return [*imports_in(path)]


def imports_in(path: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    package = ("ktir", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split(".")), node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield (*base, alias.name), node.lineno
        elif isinstance(node, ast.Call) and loads(node):
            yield tuple(ast.literal_eval(node.args[0]).split(".")), node.lineno


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


@cache
def arrows() -> dict[str, set[str]]:
    """Per module the modules that it imports. The front door is left out: it loads at first use what stands on top of all."""
    known = files()
    result: dict[str, set[str]] = {}
    for module, path in known.items():
        if module == "ktir":
            continue
        names = (name if ".".join(name) in known else name[:-1] for name, _ in imported(path))
        result[module] = {".".join(name) for name in names if ".".join(name) in known} - {module, "ktir"}
    return result


def circle(graph: dict[str, set[str]]) -> str | None:
    """A circle of a graph, if it has one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as found:
        return " <- ".join(found.args[1])
    return None


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(arrows()) is None


def test_no_rooms_import_each_other_in_a_circle() -> None:
    """A room is a folder; the files of the folder around it are another room."""
    known = files()
    rooms: dict[str, set[str]] = {}
    for module, others in arrows().items():
        here, *there = (known[name].parent.relative_to(ROOT.parent).as_posix() for name in (module, *others))
        rooms.setdefault(here, set()).update(set(there) - {here})
    assert circle(rooms) is None


def test_no_folder_has_more_files_than_one_can_survey() -> None:
    count = Counter(path.parent.relative_to(ROOT.parent).as_posix() for path in files().values())
    assert not {folder: n for folder, n in count.items() if n > MOST_FILES}


def test_no_file_class_or_function_is_large() -> None:
    wrong = []
    for path in files().values():
        where = path.relative_to(ROOT.parent).as_posix()
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MOST_LINES["file"]:
            wrong.append(f"{where}: {lines} lines")
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            most = MOST_LINES["class" if isinstance(node, ast.ClassDef) else "function"]
            size = (node.end_lineno or 0) - node.lineno + 1
            if size > most:
                wrong.append(f"{where}:{node.lineno}: '{node.name}' has {size} lines")
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
