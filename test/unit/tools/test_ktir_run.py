"""`ktir-run`: what it takes arrays from, and what it says of bad input. What it shows is tested with lit."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from ktir.emulator.policy import Policy
from ktir.tools import ktir_compile, ktir_run
from ktir.tools.shared.flags import parse
from ktir.tools.shared.policy import policy_flags, policy_of
from ktir.tools.shared.sources import Expected, SourceError, read_value

ADD = str(Path(__file__).parents[2] / "lit" / "tools" / "Inputs" / "add.mlir")

PLACED = """
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id = affine_map<(d0) -> (d0)>
#hbm = #ktdp.memory_space<global>
#lx = #ktdp.memory_space<ct_local>
func.func @f() {
  %from = arith.constant 8 : index
  %to = arith.constant 16 : index
  %a = ktdp.construct_memory_view %from, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #hbm} : memref<4xf32>
  %b = ktdp.construct_memory_view %to, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #lx} : memref<4xf32>
  %at = ktdp.construct_access_tile %a[0] {access_tile_order = #id, access_tile_set = #box} : memref<4xf32> -> !ktdp.access_tile<4xindex>
  %bt = ktdp.construct_access_tile %b[0] {access_tile_order = #id, access_tile_set = #box} : memref<4xf32> -> !ktdp.access_tile<4xindex>
  %x = ktdp.load %at : <4xindex> -> tensor<4xf32>
  %y = arith.addf %x, %x : tensor<4xf32>
  ktdp.store %y, %bt : tensor<4xf32>, <4xindex>
  return
}
"""


def run(*words: str) -> int:
    return ktir_run.main([*words])


def test_each_field_of_the_policy_is_a_flag() -> None:
    line = parse(["--numerics=fast", "--races=false", "--bounds", "--lx-bytes=4096", "--grid-order=first-fastest"], policy_flags())
    assert policy_of(line) == Policy(numerics="fast", races=False, lx_bytes=4096, grid_order="first-fastest")
    assert policy_of(parse([], policy_flags())) == Policy()
    assert all(f.help and f.help[0] != "(" for f in policy_flags())


def test_a_program_gets_files_and_leaves_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((4, 64)).astype(np.float16) for _ in range(2))
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "more.npz", y=y, other=x)
    out = tmp_path / "out.npy"
    common = (ADD, f"--arg=x=@{tmp_path}/x.npy", f"--arg=y=@{tmp_path}/more.npz:y", "--arg=out=zeros")
    assert run(*common, f"--out=out=@{out}") == 0
    assert (np.load(out) == x + y).all()
    np.savez(tmp_path / "reference.npz", out=(x + y).astype(np.float32))
    assert run(*common, f"--against={tmp_path}/reference.npz") == 0
    wrong = (x + y).astype(np.float32)
    wrong[2, 5:7] += 1
    np.savez(tmp_path / "reference.npz", out=wrong)
    assert run(*common, f"--against={tmp_path}/reference.npz") == 1
    assert run(*common, f"--against={tmp_path}/reference.npz", "--atol=2") == 0


def test_arrays_at_addresses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "f.mlir", tmp_path / "out.npy"
    source.write_text(PLACED)
    assert run(str(source), "--mem=global:8=iota", "--mem=lx:0:16=zeros:f32[4]", f"--out=lx:0:16=@{out}") == 0
    assert np.load(out).tolist() == [0, 2, 4, 6]
    for words, message in (
        (("--mem=global:8=iota", "--mem=global:0x8=iota"), "two --mem give the same place"),
        (("--mem=hbm:8=iota",), "expected global:OFFSET or lx:TILE:OFFSET"),
        (("--mem=global:9=iota",), "the kernel does not tell the shape"),
        (("--mem=global:8=4",), "expects an array"),
        (("--mem=global:8=zeros:f16[4]",), "memory at global:8 has elements of type f32, expected an array of float32, but got float16"),
        (("--mem=global:8=iota", "--out=lx:0:16=@y.npy"), "there is no array 'lx:0:16'"),
    ):
        assert run(str(source), *words) == 2
        assert message in capsys.readouterr().err


def test_findings_are_reported_where_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "race.mlir"
    source.write_text(Path(ADD).read_text().replace("%vo[%t, %c0]", "%vo[%c0, %c0]"))
    assert run(str(source), "--random=0") == 2
    assert f"{source}:17:3: error: 'ktdp.store' op" in capsys.readouterr().err
    assert run(str(source), "--random=0", "--races=false", "--quiet") == 0


def test_arrays_at_addresses_on_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that has its addresses as numbers, with a grid of `index`: its memory goes to the chip and comes back."""
    source, there, here = tmp_path / "f.mlir", tmp_path / "there.npz", tmp_path / "here.npz"
    kernel = PLACED.replace("#lx = #ktdp.memory_space<ct_local>", "#lx = #ktdp.memory_space<global>").replace("f32", "f16")
    source.write_text(kernel.replace("@f() {", "@f() attributes {grid = [1 : index]} {"))
    assert run(str(source), "--mem=global:8=iota", "--mem=global:16=zeros", f"--out=@{here}") == 0
    assert run(str(source), "--mem=global:8=iota", "--mem=global:16=zeros", "--engine=spyre", f"--out=@{there}") == 0
    with np.load(here) as a, np.load(there) as b:
        assert a["global:16"].tolist() == b["global:16"].tolist() == [0, 2, 4, 6]
    typed = ("--mem=global:8:f16=iota", "--mem=global:16=zeros", "--engine=spyre", f"--out=@{there}")
    assert run(str(source), *typed) == 0
    with np.load(there) as b:
        assert b["global:16"].tolist() == [0, 2, 4, 6]
    assert run(str(source), "--mem=global:8=iota", "--engine=spyre") == 2
    assert "the kernel has memory at address 16, but nothing is given for global:16" in capsys.readouterr().err
    assert run(str(source), *typed, "--mem=global:8=iota") == 2
    assert "the kernel has memory at address 8, but two arrays are given for global:8" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(4, 64), (256,), (300,)])
def test_both_engines_take_the_same_arrays(shape: tuple[int, ...], tmp_path: Path) -> None:
    """An array is memory: of the shape that the views of the kernel have, or of one dim with enough elements."""
    rng, found = np.random.default_rng(2), {}
    arrays = {name: rng.standard_normal(shape).astype(np.float16) for name in ("x", "y", "out")}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = [f"--arg={name}=@{tmp_path / name}.npy" for name in arrays]
    for engine in ("ktir", "spyre"):
        file = tmp_path / f"{engine}.npy"
        assert run(str(Path(__file__).parents[3] / "examples" / "add.mlir"), *given, f"--engine={engine}", f"--out=out=@{file}") == 0
        found[engine] = np.load(file)
    expected = arrays["out"].reshape(-1)
    expected[:256] = arrays["x"].reshape(-1)[:256] + arrays["y"].reshape(-1)[:256]
    for array in found.values():
        assert array.shape == shape
        assert np.array_equal(array.reshape(-1), expected)


KEEPS = """
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#map = affine_map<(d0, d1) -> (d0, d1)>
module attributes {ktir.level = "logical"} {
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<4x64xf16>},
    %p: index {ktir.name = "p", ktir.role = "pool", ktir.type = tensor<4x64xf16>},
    %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<4x64xf16>}) {
    %0 = ktdp.construct_memory_view %x, sizes: [4, 64], strides: [64, 1] {GLOBAL} : memref<4x64xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {WHOLE} : memref<4x64xf16> -> !ktdp.access_tile<4x64xindex>
    %2 = ktdp.load %1 : <4x64xindex> -> tensor<4x64xf16>
    %3 = ktdp.construct_memory_view %p, sizes: [4, 64], strides: [64, 1] {GLOBAL} : memref<4x64xf16>
    %4 = ktdp.construct_access_tile %3[0, 0] {WHOLE} : memref<4x64xf16> -> !ktdp.access_tile<4x64xindex>
    ktdp.store %2, %4 : tensor<4x64xf16>, <4x64xindex>
    %5 = ktdp.load %4 : <4x64xindex> -> tensor<4x64xf16>
    %6 = ktdp.construct_memory_view %y, sizes: [4, 64], strides: [64, 1] {GLOBAL} : memref<4x64xf16>
    %7 = ktdp.construct_access_tile %6[0, 0] {WHOLE} : memref<4x64xf16> -> !ktdp.access_tile<4x64xindex>
    ktdp.store %5, %7 : tensor<4x64xf16>, <4x64xindex>
    return
  }
}
""".replace("{GLOBAL}", "{coordinate_set = #set, memory_space = #ktdp.memory_space<global>}").replace(
    "{WHOLE}", "{access_tile_order = #map, access_tile_set = #set}"
)


@pytest.mark.parametrize("way", ["--stage=logical", "--stage=tiled", "--engine=spyre"])
@pytest.mark.parametrize("given", [("--arg=x=iota", "--arg=y=zeros"), ("--arg=x=iota", "--random=0")])
def test_what_a_program_keeps_for_itself_is_not_given(way: str, given: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "f.mlir").write_text(KEEPS)
    assert run(str(tmp_path / "f.mlir"), *given, way, f"--out=y=@{tmp_path / 'y.npy'}", "--quiet") == 0
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.arange(256, dtype=np.float16).reshape(4, 64))


def test_what_addresses_count(tmp_path: Path) -> None:
    """Memory at the number 3 of two types is two pieces of memory, and a stick lies elsewhere than an element."""
    text = """
#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#same = affine_map<(d0, d1) -> (d0, d1)>
func.func @widened() {
  %a = arith.constant 256 : index
  %av = ktdp.construct_memory_view %a, sizes: [4, 64], strides: [64, 1]
      {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
  %b = arith.constant WHERE : index
  %bv = ktdp.construct_memory_view %b, sizes: [4, 64], strides: [64, 1]
      {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4x64xf32>
  %at = ktdp.construct_access_tile %av[0, 0]
      {access_tile_set = #box, access_tile_order = #same} : memref<4x64xf16> -> !ktdp.access_tile<4x64xindex>
  %v = ktdp.load %at : <4x64xindex> -> tensor<4x64xf16>
  %w = arith.extf %v : tensor<4x64xf16> to tensor<4x64xf32>
  %bt = ktdp.construct_access_tile %bv[0, 0]
      {access_tile_set = #box, access_tile_order = #same} : memref<4x64xf32> -> !ktdp.access_tile<4x64xindex>
  ktdp.store %w, %bt : tensor<4x64xf32>, <4x64xindex>
  return
}
"""
    for unit, where, names in (
        ("element", 256, ["global:256:f16", "global:256:f32"]),
        ("stick", 512, ["global:16384:f16", "global:16384:f32"]),
        ("byte", 1024, ["global:128", "global:256"]),
    ):
        file = tmp_path / f"{unit}.mlir"
        file.write_text(text.replace("WHERE", str(where)))
        for engine in ("ktir", "spyre"):
            out = tmp_path / f"{unit}_{engine}.npz"
            words = [str(file), "--random=1", "--quiet", f"--addresses={unit}", f"--engine={engine}", f"--out=@{out}"]
            assert ktir_run.main(words) == 0
            with np.load(out) as found:
                assert sorted(found) == names
                x, y = sorted(found.values(), key=lambda a: a.itemsize)
                assert x.dtype == np.float16
                assert (y == x).all()
                assert np.unique(x).size > 100
        status = ktir_compile.main([str(file), f"--addresses={unit}", "-o", str(tmp_path / unit)])
        assert status == 0


def test_names_of_the_text_on_the_machine(tmp_path: Path) -> None:
    """A function that states no level and has no names is called as it is written, at every stage."""
    source, out = tmp_path / "f.mlir", tmp_path / "out.npz"
    source.write_text(
        PLACED.replace("#lx = #ktdp.memory_space<ct_local>", "#lx = #ktdp.memory_space<global>")
        .replace("f32", "f16")
        .replace("@f()", "@f(%from: index, %to: index)")
        .replace("  %from = arith.constant 8 : index\n", "")
        .replace("  %to = arith.constant 16 : index\n", "")
    )
    for stage in ((), ("--engine=spyre",)):
        assert run(str(source), "--arg=from=iota", "--arg=to=zeros", f"--out=@{out}", *stage) == 0
        with np.load(out) as arrays:
            assert arrays["to"].tolist() == [0, 2, 4, 6]


EXCHANGE = """
#all = affine_set<(i)[g] : (i >= 0, -i + 1 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f() attributes {grid = [2]} {
  %v = arith.constant dense<1.0> : tensor<4xf16>
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v : tensor<4xf16>
  }
  %a = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #all : <(tensor<4xf16>), groups = #one> -> tensor<4xf16>
  return
}
"""


def test_rules_of_exchanges_hold_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R8, also in a function that is not the one to run; the compiler asks for the same."""
    source = tmp_path / "f.mlir"
    source.write_text(EXCHANGE + "func.func @g() {\n  return\n}\n")
    for main, words in ((ktir_run.main, ["--func=g"]), (ktir_compile.main, ["-o", str(tmp_path / "package")])):
        assert main([str(source), *words])
        assert f"{source}:10:8: error: 'ktdp.inter_tile_consume' op" in capsys.readouterr().err
    assert not (tmp_path / "package").exists()


def bad_files(folder: Path) -> dict[str, str]:
    """Name of a file -> part of what must be said of it."""
    np.save(folder / "objects.npy", np.array([{}, []], object), allow_pickle=True)
    np.savez(folder / "objects.npz", allow_pickle=True, a=np.array([{}], object))
    np.save(folder / "complex.npy", np.zeros(256, np.complex64))
    np.save(folder / "strings.npy", np.array(["a"]))
    np.save(folder / "short.npy", np.zeros(255, np.float16))
    np.save(folder / "type.npy", np.zeros(256, np.float32))
    (folder / "text.npy").write_text("hello")
    (folder / "empty.npy").write_bytes(b"")
    (folder / "pickle.npy").write_bytes(b"\x80\x04\x95\x10")
    (folder / "zip.npz").write_bytes(b"PK\x03\x04nothing more")
    np.save(folder / "whole.npy", np.zeros(256, np.float16))
    (folder / "cut.npy").write_bytes((folder / "whole.npy").read_bytes()[:-5])
    (folder / "header.npy").write_bytes((folder / "whole.npy").read_bytes()[:30])
    np.savez(folder / "two.npz", a=np.zeros(2), b=np.zeros(2))
    return {
        "objects.npy": "Python objects",
        "objects.npz": "Python objects",
        "complex.npy": "complex64, which KTIR does not have",
        "strings.npy": "which KTIR does not have",
        "short.npy": "needs f16[4,64], but got an array of shape [255]",
        "type.npy": "expected an array of float16, but got float32",
        "text.npy": "is no .npy or .npz file",
        "empty.npy": "is no .npy or .npz file",
        "pickle.npy": "is no .npy or .npz file",
        "zip.npz": "cannot read",
        "cut.npy": "cannot read",
        "header.npy": "cannot read",
        "two.npz": "holds 2 arrays, name one as",
        "two.npz:c": "has no array 'c' (there are a, b)",
        "absent.npy": "No such file or directory",
    }


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in bad_files(tmp_path).items():
        assert run(ADD, "--random=0", f"--arg=x=@{tmp_path}/{name}") == 2
        said = capsys.readouterr().err
        assert "error: " in said, name
        assert message in said, (name, said)
        assert "Traceback" not in said
        assert "internal error" not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--arg=x",), "expected NAME=VALUE"),
        (("--arg=x=3",), "expects an array, but got the number 3"),
        (("--arg=x=ranom",), "did you mean 'random'?"),
        (("--arg=x=x.npy",), "a file is given as '@x.npy'"),
        (("--arg=x=random:f16[4,a]",), "expected sizes such as [64,128]"),
        (("--arg=x=random:1.5:f16[4]",), "expected a whole number as seed"),
        (("--arg=x=fill:a",), "expected 'fill:VALUE'"),
        (("--arg=x=zeros:f16[99999999,99999999]",), "the array cannot be made"),
        (("--arg=x=ones", "--arg=0=ones"), "given twice"),
        (("--arg=x=ones", "--arg=x=zeros"), "'--arg x=zeros': 'x' is given twice"),
        (("--arg=x=ones:f17[4]",), "'f17' is no element type; did you mean 'f16'?"),
        (("--arg=ou=ones",), "'add' has no argument 'ou'; did you mean 'out'?"),
        (("--func=ad",), "has no function 'ad'; did you mean 'add'?"),
        (("--random=0", "--lx-bytes=many"), "'--lx-bytes=many': expected a number"),
        (("--random=0", "--lx-bytes=-1"), "'--lx-bytes=-1': expected a number that is not negative"),
        (("--random=0", "--mem=global:99999999999999999999=ones:f16[4]"), "the offset is too large"),
        (("--random=0", "--disturbance=foo"), "unknown command line argument '--disturbance'"),
        (("--random=0", "--out=out=y.npy"), "expected a file"),
        (("--random=0", "--out=out=@/nowhere/y.npy"), "cannot open output file '/nowhere/y.npy': No such file or directory"),
        (("--random=0", "--out=ot=@y.npy"), "did you mean 'out'?"),
        (("--random=0", "--against=/nowhere.npz"), "No such file"),
        (("--random=0", "--atol=-1", "--against=y.npy"), "expected a number that is not negative"),
        (("--random=0", "--break=99"), "expected the number of a line"),
        (("--random=0", "--break=a"), "expected the number of a line"),
        (("--random=0", "--break=16", "--commands=/nowhere"), "cannot open input file"),
        (("--random=0", "--print-op-values=("), "unterminated subpattern"),
        (("--random=x",), "expected a number"),
        (("--randm=0",), "unknown command line argument '--randm'; did you mean 'random'?"),
        (("--random=0", "--engine=spyre", "--way=lfit"), "expected pin or lift or auto"),
        (("--random=0", "--cores=5"), "'--cores' belongs to --stage or --engine"),
        (("--random=0", "--engine=ktir", "--way=lift"), "'--way' belongs to --stage or --engine"),
        (("--random=0", "--stage=tiled", "--tolerance=1"), "'--tolerance' belongs to --way"),
        (("--random=0", "--rtol=1"), "'--rtol' belongs to --against"),
        (("--random=0", "--commands=-"), "'--commands' belongs to --break"),
        (("--random=0", "--stage=tiled", "--lx-bytes=128"), "'--lx-bytes' is about the program in the text"),
        (("--random=0", "--engine=spyre", "--numerics=fast"), "'--numerics' is about the program in the text"),
        (("--numerics=slow",), "expected machine or fast or peer"),
    ],
)
def test_bad_command_lines(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ADD, *words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "internal error" not in said


def test_numbers_beyond_a_type(capsys: pytest.CaptureFixture[str]) -> None:
    """They are infinite there, which is no occasion for a warning of NumPy's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(ADD, "--arg=x=fill:1e99", "--arg=y=ones", "--arg=out=zeros") == 0
    assert "out: f16[4,64] = [inf inf inf" in capsys.readouterr().out


TURNED = """
#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#hbm = #ktdp.memory_space<global>
module attributes {ktir.level = "logical"} {
func.func @f(%x: index {X}, %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<4x64xf16>}) {
  %vx = ktdp.construct_memory_view %x, sizes: [4, 64], strides: [1, 4] {coordinate_set = #box, memory_space = #hbm} : memref<4x64xf16>
  %vy = ktdp.construct_memory_view %y, sizes: [4, 64], strides: [64, 1] {coordinate_set = #box, memory_space = #hbm} : memref<4x64xf16>
  %tx = ktdp.construct_access_tile %vx[0, 0] {access_tile_order = #id, access_tile_set = #box}
    : memref<4x64xf16> -> !ktdp.access_tile<4x64xindex>
  %ty = ktdp.construct_access_tile %vy[0, 0] {access_tile_order = #id, access_tile_set = #box}
    : memref<4x64xf16> -> !ktdp.access_tile<4x64xindex>
  %a = ktdp.load %tx : <4x64xindex> -> tensor<4x64xf16>
  ktdp.store %a, %ty : tensor<4x64xf16>, <4x64xindex>
  return
}
}
"""
"""The view of `x` goes through its memory by columns; `y` lies as its shape says."""


@pytest.mark.parametrize(
    ("declared", "taken", "refused"),
    [
        ('ktir.name = "x", ktir.role = "input"', ["T", "flat"], ["x", "more"]),
        (
            'ktir.name = "x", ktir.role = "input", ktir.type = tensor<4x64xf16>, ktir.strides = array<i64: 1, 4>',
            ["x", "flat"],
            ["T", "more"],
        ),
        ('ktir.name = "x", ktir.role = "input", ktir.type = tensor<64x4xf16>', ["T", "flat"], ["x", "more"]),
    ],
)
def test_arrays_lie_as_the_kernel_sees_them(
    declared: str, taken: list[str], refused: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k.mlir").write_text(TURNED.replace("{X}", "{" + declared + "}"))
    x = np.arange(256, dtype=np.float16).reshape(4, 64)
    arrays = {"x": x, "T": x.T, "flat": x.T.reshape(-1), "more": np.zeros((4, 80), np.float16)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", np.ascontiguousarray(array))
    common = (f"{tmp_path}/k.mlir", "--arg=y=zeros", f"--out=y=@{tmp_path}/y.npy")
    for name in taken:
        assert run(*common, f"--arg=x=@{tmp_path}/{name}.npy") == 0
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x)
    for name in refused:
        assert run(*common, f"--arg=x=@{tmp_path}/{name}.npy") == 2
        said = capsys.readouterr().err
        assert "argument 'x' is seen with sizes" in said, name
        assert "or its elements as an array of one dim, in the order in which they lie" in said


def test_arrays_lie_at_their_addresses_as_the_kernel_sees_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    box = "affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0)>"
    text = PLACED.replace("affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>", box).replace("(d0) -> (d0)>", "(d0, d1) -> (d0, d1)>")
    text = text.replace("[4], strides: [1]", "[2, 4], strides: [1, 2]", 1).replace("[4], strides: [1]", "[2, 4], strides: [4, 1]")
    (tmp_path / "k.mlir").write_text(text.replace("<4x", "<2x4x").replace("[0]", "[0, 0]"))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    common = (f"{tmp_path}/k.mlir", "--mem=lx:0:16=zeros:f32[2,4]", f"--out=lx:0:16=@{tmp_path}/y.npy")
    for name, array in {"T": x.T, "flat": x.T.reshape(-1), "x": x}.items():
        np.save(tmp_path / "x.npy", np.ascontiguousarray(array))
        assert run(*common, f"--mem=global:8=@{tmp_path}/x.npy") == (2 if name == "x" else 0)
        if name != "x":
            np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), 2 * x)
    assert "memory at global:8 is seen with sizes [2, 4] and strides [1, 2], as no array of shape [2, 4] lies" in capsys.readouterr().err


def test_bad_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "m.mlir"
    for text, message in (
        ("module {", "m.mlir:1:"),
        (
            "func.func @f() { return }\nfunc.func @g() { return }",
            "has 2 functions that no other calls; name one with --func (there are f, g)",
        ),
        ("module {}", "m.mlir:1:1: error: expects a function with a body"),
        ("func.func @f(%n: i32, %s: f16) { return }", "'f' needs 2 more arguments: 'n', 's'"),
        ("\xff", "error"),
    ):
        source.write_text(text, encoding="latin-1")
        assert run(str(source)) == 2
        assert message in capsys.readouterr().err
    source.write_text("func.func @f(%n: i32, %s: f16) { return }")
    assert run(str(source), "--arg=n=4", "--arg=s=0.5") == 0
    assert run(str(source), "--arg=n=ones:i32[4]", "--arg=s=0.5") == 2
    assert "expects a number" in capsys.readouterr().err
    assert run(str(source), "--arg=n=0.5", "--arg=s=0.5") == 2


def test_quitting_at_a_breakpoint_leaves_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = tmp_path / "commands"
    commands.write_text("print nothing\nbreak x\nbogus\nprint a[9]\nprint a @7\nhelp\nquit\n")
    out = tmp_path / "out.npy"
    assert run(ADD, "--random=0", "--break=16", f"--commands={commands}", f"--out=out=@{out}") == 2
    captured = capsys.readouterr()
    assert "the execution was ended at a breakpoint" in captured.err
    assert "there is no value 'nothing' here" in captured.out
    assert captured.out.count("there is no element") == 2
    assert "unknown command 'bogus'" in captured.out
    assert not out.exists()


def test_a_breakpoint_that_is_not_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ADD, "--random=0", "--break=14", "--quiet") == 0
    assert "warning: no op of line 14 was executed" in capsys.readouterr().err


def test_loops_that_would_not_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "loop.mlir"
    source.write_text("""func.func @f() {
  %a = arith.constant 0 : index
  %b = arith.constant 200 : index
  %c = arith.constant 1 : index
  scf.for %i = %a to %b step %c {
    scf.for %j = %a to %b step %c {
    }
  }
  return
}
""")
    assert run(str(source), "--most-steps=10000") == 2
    wanted = "'scf.for' op takes 40400 steps or more in its 200 trips, but a run may take 10000; 'most-steps' sets how many"
    assert f"{source}:5:3: error: {wanted}" in capsys.readouterr().err
    assert run(str(source), "--most-steps=50000") == 0


def test_values_of_all_element_types() -> None:
    expected = Expected("bf16", (2, 3))
    assert read_value("x", "ones", expected, 0).dtype == np.uint16
    assert read_value("x", "fill:1.5:f8E4M3FN[2]", expected, 0).dtype == np.uint8
    assert read_value("x", "arange:i64[5]", expected, 0).tolist() == [0, 1, 2, 3, 4]
    assert read_value("x", "random:3:index[5]", Expected(below=5), 0).sum() == 10
    assert (read_value("x", "random:3", expected, 0) == read_value("x", "random:3", expected, 9)).all()
    assert read_value("x", "zeros:i1[2]", expected, 0).dtype == np.bool_
    with pytest.raises(SourceError, match="is no value of type i8"):
        read_value("x", "fill:1.5:i8[2]", expected, 0)
