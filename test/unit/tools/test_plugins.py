"""Passes, dialects and targets of other packages: by entry point, or as a module that is loaded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PASS = '''
from dataclasses import dataclass
from typing import ClassVar
from ktir.pipeline import NamedPipeline, Pass
from ktir.mlir import func, ir

@dataclass(frozen=True)
class Rename(Pass):
    """Give functions a prefix."""

    name: ClassVar[str] = "toy-rename"
    description: ClassVar[str] = "prefix the names of functions"
    prefix: str = "toy_"

    def run(self, module):
        for op in module.body.operations:
            if isinstance(op, func.FuncOp):
                op.attributes["sym_name"] = ir.StringAttr.get(self.prefix + op.name.value)

@dataclass(frozen=True)
class Twice(NamedPipeline):
    name: ClassVar[str] = "toy-twice"

    def text(self):
        return "toy-rename,cse,toy-rename{prefix=b_}"
'''
DIALECT = """
from ktir.mlir import ext, ir

class Toy(ext.Dialect, name="toy"):
    pass

class Thing(Toy.Operation, name="thing"):
    a: ext.Operand[ir.IndexType]
"""
METADATA = "Metadata-Version: 2.1\nName: toy-ktir\nVersion: 1.0\n"
ENTRIES = """\
[ktir.passes]
toy-rename = toy_ktir.passes:Rename
toy-broken = toy_ktir.nowhere:Broken
[ktir.dialects]
toy = toy_ktir.dialect:Toy
[ktir.targets]
toy-chip = toy_ktir:CHIP
"""
CHIP = 'from pathlib import Path\nCHIP = Path(__file__).with_name("chip.toml")\n'
TEXT = "func.func @f(%a: index) { return }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as `site-packages` is: a package, and its metadata."""
    package, metadata = tmp_path / "toy_ktir", tmp_path / "toy_ktir-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").write_text(CHIP)
    (package / "chip.toml").write_text("cores = 4\n")
    (package / "passes.py").write_text(PASS)
    (package / "dialect.py").write_text(DIALECT)
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text(ENTRIES)
    return tmp_path


def opt(folder: Path, *arguments: str, text: str = TEXT, code: int = 0) -> str:
    path = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, "-m", "ktir.tools.ktir_opt", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_entry_points(folder: Path) -> None:
    assert "@a_f(" in opt(folder, "--toy-rename=prefix=a_")
    assert "@toy_f(" in opt(folder, "--pass-pipeline=cse,toy-rename")
    assert "cores = 4 : i64" in opt(folder, "--target=toy-chip")
    assert "toy.thing" in opt(folder, text='func.func @f(%a: index) { "toy.thing"(%a) : (index) -> () return }\n')


def test_a_module_that_is_loaded(folder: Path) -> None:
    (folder / "toy_ktir-1.0.dist-info" / "entry_points.txt").unlink()
    assert "unknown command line argument '--toy-rename'" in opt(folder, "--toy-rename", code=1)
    assert "@toy_f(" in opt(folder, "--load-pass-plugin=toy_ktir.passes", "--toy-rename")
    assert "@b_toy_f(" in opt(folder, "--load-pass-plugin=toy_ktir.passes", "--pass-pipeline=toy-twice")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--toy-renam"], "unknown command line argument '--toy-renam'; did you mean 'toy-rename'?"),
        (["--pass-pipeline=ktir-tle"], "'ktir-tle' does not refer to a registered pass or pass pipeline; did you mean 'ktir-tile'?"),
        (
            ["--pass-pipeline=builtin.module(cse, toy-renam)"],
            "pipeline:1:21: error: 'toy-renam' does not refer to a registered",
        ),
        (["--load-pass-plugin=toy_ktir.passes", "--toy-twicee"], "unknown command line argument '--toy-twicee'; did you mean 'toy-twice'?"),
        (["--toy-rename=prefx=a"], "pass 'toy-rename' has no option 'prefx=a'; did you mean 'prefix'? (options: prefix)"),
        (["--toy-broken"], "entry point 'toy-broken' of package 'toy-ktir' in 'ktir.passes' cannot be loaded: ModuleNotFoundError"),
        (["--target=toy-chp"], "unknown target 'toy-chp'; did you mean 'toy-chip'?"),
        (["--load-pass-plugin=toy_ktir.nowhere"], "plugin 'toy_ktir.nowhere' cannot be loaded: ModuleNotFoundError"),
        (["--load-pass-plugin=toy_ktir"], "plugin 'toy_ktir' defines no pass, pipeline, dialect or target"),
    ],
)
def test_refused(folder: Path, arguments: list[str], message: str) -> None:
    found = opt(folder, *arguments, code=1)
    assert message in found
    assert "internal error" not in found


BROKEN = {
    "exits": ("raise SystemExit(7)", "plugin 'broken' cannot be loaded: SystemExit: 7"),
    "no pass": (
        "class A:\n    name = description = 'toy-a'",
        "plugin 'broken' gives 'A' the name 'toy-a' and a description, but it is no Pass",
    ),
    "no name": (PASS.replace('    name: ClassVar[str] = "toy-twice"\n', ""), "plugin 'broken': class 'Twice' has no 'name'"),
    "twice": (PASS + PASS.replace("class Rename", "class Other"), "plugin 'broken' defines 'toy-rename' twice"),
    "ours": (PASS.replace("toy-rename", "ktir-tile"), "plugin 'broken' defines 'ktir-tile', but there is one of that name"),
    "of MLIR": (PASS.replace("toy-rename", "cse"), "plugin 'broken' defines 'cse', but MLIR has a pass of that name"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_plugins(folder: Path, name: str) -> None:
    code, message = BROKEN[name]
    (folder / "broken.py").write_text(code)
    found = opt(folder, "--load-pass-plugin=broken", "--cse", code=1)
    assert message in found
    assert "internal error" not in found


def test_nobody_looks_for_entry_points_unasked(folder: Path) -> None:
    source = folder / "x.mlir"
    source.write_text(TEXT)
    code = f"import sys; from ktir.tools.ktir_opt import main; main([{str(source)!r}, '--cse', '--ktir-canonicalize'])"
    code += "; print('importlib.metadata' in sys.modules, 'toy_ktir' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_a_suite_of_somebody_else(folder: Path) -> None:
    suite = folder / "suite"
    suite.mkdir()
    (suite / "lit.cfg.py").write_text("import ktir.testing\n\nktir.testing.configure(config, __file__)\n")
    line = "// RUN: ktir-opt --help | FileCheck %s\n"
    (suite / "good.mlir").write_text(line + "// CHECK: usage: ktir-opt\n")
    (suite / "bad.mlir").write_text(line + "// CHECK: something else\n")
    path = os.pathsep.join([str(folder), str(ROOT)])
    command = [str(Path(sys.executable).parent / "lit"), "-v", "-j1", str(suite)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert "PASS: suite :: good.mlir" in done.stdout
    assert "FAIL: suite :: bad.mlir" in done.stdout


SAY = PASS.partition("@dataclass(frozen=True)\nclass Twice")[0].replace("toy-rename", "toy-say").partition("    def run")[0]
SAY += '    def run(self, module):\n        self.remark(self.prefix, "hello")\n        unknown\n'


def test_a_plugin_is_listed_and_its_faults_have_a_place(folder: Path) -> None:
    """A pass of a plugin is in the list; a remark of no kind is an error; what a pass raises names the line."""
    (folder / "toy_say.py").write_text(SAY)
    assert "--toy-say " in opt(folder, "--load-pass-plugin=toy_say", "--list-passes").partition("Passes of plugins:")[2]
    wrong = opt(folder, "--load-pass-plugin=toy_say", "--toy-say=prefix=guess", code=1)
    assert "ValueError: a remark is of kind passed, missed, failed, analysis, but got 'guess'" in wrong
    place = f"toy_say.py:{SAY.count(chr(10))}"
    assert f"failed in {place}: NameError: " in opt(folder, "--load-pass-plugin=toy_say", "--toy-say=prefix=passed", code=1)
    assert "expected the dotted name of a module" in opt(folder, "--load-pass-plugin=./toy_say.py", "--cse", code=1)


def test_what_a_pass_leaves_can_be_read_again(folder: Path) -> None:
    """An attribute that ktir would refuse to read is an error where it is written."""
    (folder / "toy_mark.py").write_text(PASS.replace('attributes["sym_name"]', 'attributes["ktir.mark"]'))
    found = opt(folder, "--load-pass-plugin=toy_mark", "--toy-rename", code=1)
    assert "<stdin>:1:1: error: 'func.func' op has an unknown attribute 'ktir.mark'" in found


def test_a_module_in_this_folder_that_is_not_on_the_path(folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "toy_own.py").write_text(PASS)
    command = [sys.executable, "-P", "-m", "ktir.tools.ktir_opt", "--load-pass-plugin=toy_own", "--toy-rename"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=TEXT, capture_output=True, text=True, env=environment, cwd=folder / "own")
    wanted = "No module named 'toy_own'; toy_own.py is in this folder, which PYTHONPATH does not name: PYTHONPATH=. does"
    assert (done.returncode, wanted in done.stderr) == (1, True), done.stderr


INSTEAD = """
from dataclasses import dataclass
from typing import ClassVar
from ktir.pipeline import Pass
from ktir.mlir import arith, ir, math, operations

@dataclass(frozen=True)
class Instead(Pass):
    name: ClassVar[str] = "toy-instead"
    description: ClassVar[str] = "something else than magnitudes, so that it is seen"

    def run(self, module):
        for op in operations(module):
            if isinstance(op.opview, math.AbsFOp):
                with ir.InsertionPoint(op), op.location:
                    new = arith.NegFOp(op.operands[0])
                op.results[0].replace_all_uses_with(new.result)
                op.erase()
"""
ABSOLUTE = """
module attributes {ktir.level = "logical"} {
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<1x64xf16>},
               %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<1x64xf16>}) {
    %a = ktdp.construct_memory_view %x, sizes: [1, 64], strides: [64, 1] {
      coordinate_set = #s, memory_space = #ktdp.memory_space<global>} : memref<1x64xf16>
    %t = ktdp.construct_access_tile %a[0, 0] {access_tile_set = #s, access_tile_order = #o}
      : memref<1x64xf16> -> !ktdp.access_tile<1x64xindex>
    %v = ktdp.load %t : <1x64xindex> -> tensor<1x64xf16>
    %w = math.absf %v : tensor<1x64xf16>
    %b = ktdp.construct_memory_view %y, sizes: [1, 64], strides: [64, 1] {
      coordinate_set = #s, memory_space = #ktdp.memory_space<global>} : memref<1x64xf16>
    %u = ktdp.construct_access_tile %b[0, 0] {access_tile_set = #s, access_tile_order = #o}
      : memref<1x64xf16> -> !ktdp.access_tile<1x64xindex>
    ktdp.store %w, %u : tensor<1x64xf16>, <1x64xindex>
    return
  }
}
"""
ALIASES = """#s = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#o = affine_map<(d0, d1) -> (d0, d1)>
"""
RUN = """
import sys
from ktir import config, registry
from ktir.tools import ktir_run
registry.add_plugin("toy_instead")
print(hash(config.current().key()))
sys.exit(ktir_run.main(["f.mlir", "--arg=x=fill:4", "--arg=y=zeros", "--engine=spyre"]))
"""


@pytest.mark.turn
def test_passes_on_the_way_of_compiled_programs(folder: Path) -> None:
    """They run, and what is cached without them, or with other sources of them, has another key."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    (folder / "f.mlir").write_text(ALIASES + ABSOLUTE)

    def run(passes: str, instead: str = INSTEAD) -> tuple[str, str]:
        (folder / "toy_instead.py").write_text(instead)
        environment = os.environ | {"PYTHONPATH": path, "KTIR_LOGICAL_PASSES": passes, "PYTHONHASHSEED": "0"}
        done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, env=environment, cwd=folder)
        key, _, said = (done.stdout + done.stderr).partition("\n")
        return key, said

    found = [run(""), run("toy-instead"), run("toy-instead", INSTEAD.replace("arith.NegFOp", "math.SqrtOp"))]
    assert [re.findall(r"min (\S+)", said) for _, said in found] == [["4"], ["-4"], ["2"]]
    assert len({key for key, _ in found}) == 3
    assert "logical_passes: 'toy-insted' does not refer to a registered pass" in run("toy-insted")[1]
