"""The package on disk: round trip, agreement of its files, refusal of damaged ones."""

import json
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ktir.diagnostics import KtirError
from ktir.isa.assembly.text import parse_program
from ktir.package import HostView, LaunchArgument, LaunchSpec, Package, PackageError, PublishedLayout, content_hash, manifest, read
from ktir.package.files import TARGET
from ktir.package.schema import SCHEMA
from ktir.target import DATASHEET

PROGRAM = """
.program "scale"
.argument a0 = "x", role=input, sticks=6, element_bytes=2
.argument a1 = "pool0", role=pool, sticks=12, element_bytes=4
.kernel "k", cores=1
.descriptor %x = ddr, element_bytes=2, extent=[6], stride=[128], arg=a0
.descriptor %lx = lx, element_bytes=2, extent=[6], stride=[128]
.unit MNIL
  move src=%x, dst=%lx @1
  halt
.source 1 = "ktdp.load", "scale.mlir:3:8"
"""


def layout(dtype: str) -> PublishedLayout:
    name = {"float16": "IEEE_FP16", "float32": "IEEE_FP32"}[dtype]
    return PublishedLayout((3, 70), (2, 3, 64), (64, 70, 1), name, "STANDARD", "zero")


def package() -> Package:
    host = HostView(0, 0, (3, 70), (70, 1))
    args = (
        LaunchArgument(0, "x", "input", host, "float16", layout("float16")),
        LaunchArgument(1, "pool0", "pool", None, "float32", layout("float32")),
    )
    return Package(parse_program(PROGRAM), LaunchSpec("scale", 1536, args), {"allocated.ktir.mlir": b"module {}\n"})


FILES = package().to_files()


def with_file(name: str, data: bytes | None) -> dict[str, bytes]:
    """The files with one replaced or removed, and a manifest that lists the result."""
    files = {n: d for n, d in FILES.items() if n != name and n != manifest.NAME}
    if data is not None:
        files[name] = data
    return {manifest.NAME: manifest.make(files), **files} if manifest.PROGRAM in files else {**files}


def with_spec(change: Callable[[dict[str, Any]], Any]) -> dict[str, bytes]:
    spec = json.loads(FILES["launch_spec.json"])
    change(spec)
    return with_file("launch_spec.json", json.dumps(spec).encode())


def test_round_trip(tmp_path: Path) -> None:
    assert read(FILES) == package()
    assert read(FILES).sources == package().program.sources
    assert read(FILES).to_files() == FILES == package().to_files()
    package().write(tmp_path / "p")
    assert read(tmp_path / "p") == package()
    assert read(str(tmp_path / "p")).launch_spec.args[0].shape == (3, 70)
    assert content_hash(FILES) == content_hash(dict(reversed(FILES.items())))
    assert content_hash(FILES) != content_hash({**FILES, "debug.json": b""})
    assert read(with_file("allocated.ktir.mlir", None)).files == {}


def test_schema() -> None:
    """What the schema allows and forbids is what the reader does, apart from how fields belong together."""
    check = jsonschema.Draft202012Validator(SCHEMA)
    spec = package().launch_spec.to_json()
    assert list(check.iter_errors(spec)) == []
    one = spec["args"][0]
    for changed in (
        {**spec, "version": 2},
        {**spec, "args": [{**one, "role": "x"}]},
        {**spec, "args": [{**one, "host": None}]},
        {**spec, "args": [{k: v for k, v in one.items() if k != "host"}]},
        {**spec, "args": [{**one, "shape": [0]}]},
        {**spec, "args": [{**one, "layout": {**one["layout"], "stride_map": [-2]}}]},
        {**spec, "args": [{**one, "range": {"low": 0}}]},
        {**spec, "args": [{k: v for k, v in one.items() if k != "layout"}]},
        {**spec, "hosts": [{"element": "f16", "size": [3, 70]}]},
        {**spec, "hosts": [{"element": "f16", "size": [3, 70], "strides": [-1, 1]}]},
    ):
        assert list(check.iter_errors(changed)), changed
        if changed["args"][0].get("host", 0) is not None:
            with pytest.raises(PackageError):
                LaunchSpec.from_json(changed)


def test_manifest() -> None:
    value = json.loads(FILES["spyrecode.json"])
    size = str(len(FILES["program.bin"]))
    assert value["JobPreparationPlan"] == [
        {"command": "Allocate", "properties": {"size": size}},
        {"command": "InitTransfer", "properties": {"init_bin_file": "program.bin", "size": size, "dev_ptr": "120259084288"}},
    ]
    assert value["JobExecPlan"] == [{"command": "ComputeOnDevice", "properties": {"job_bin_ptr": "120259084288"}}]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "file 'spyrecode.json' is missing"),
        ({**FILES, "x": b""}, "'x' is no file of a package"),
        ({n: d for n, d in FILES.items() if n != "debug.json"}, "file 'debug.json' is missing"),
        ({n: d for n, d in FILES.items() if n != "allocated.ktir.mlir"}, "file 'allocated.ktir.mlir' is missing"),
        ({**FILES, "program.bin": FILES["program.bin"][:-1]}, "file 'program.bin' has 1023 bytes, but the manifest says 1024"),
        ({**FILES, "debug.json": FILES["debug.json"].replace(b"3", b"4")}, "file 'debug.json' is damaged"),
        ({**FILES, "spyrecode.json": b"[]"}, "expects an object with the key 'Package'"),
        ({**FILES, "spyrecode.json": b"{"}, "is not valid JSON"),
        ({**FILES, "spyrecode.json": b"[" * 100_000}, "is not valid JSON"),
        ({**FILES, "spyrecode.json": b'{"a": NaN}'}, "is not valid JSON"),
        ({**FILES, "spyrecode.json": b'{"a": 1, "a": 2}'}, "an object has a key twice"),
        ({**FILES, "spyrecode.json": FILES["spyrecode.json"].replace(b'"version": "1"', b'"version": "2"')}, "package version '2'"),
        ({**FILES, "spyrecode.json": FILES["spyrecode.json"].replace(b"Allocate", b"Deallocate")}, "the plans are not those"),
        (with_file("program.bin", b"SIS0"), "program.bin: offset 0x0: expects a header"),
        (with_file("program.bin", b"SIS0\x01\x00" + FILES["program.bin"][6:]), "program.bin: offset 0x4: is of version 1, but"),
        (with_file("debug.json", b'{"version": 2}'), "debug.json: expects an object of version 1"),
        (with_file("debug.json", b'{"version": 1, "sources": []}'), "expects 'sources' to be a list"),
        (with_file("debug.json", b'{"version": 1, "sources": [{"op": "", "location": ""}]}'), "carries source id 1, but there are 1"),
    ],
)
def test_wrong_files(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(PackageError) as e:
        read(files)
    assert message in str(e.value)


def change_arg(key: str, value: Any, index: int = 0) -> Callable[[dict[str, Any]], Any]:
    return lambda spec: spec["args"][index].update({key: value})


def change_layout(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda spec: spec["args"][0]["layout"].update({key: value})


def change_host(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda spec: spec["args"][0]["host"].update({key: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("version"), "version is missing"),
        (lambda s: s.update(version=2), "version 2 is not supported"),
        (lambda s: s.pop("args"), "args is missing"),
        (lambda s: s.update(args={}), "args expects a list"),
        (lambda s: s.update(args=[3]), "args[0]: expects an object, but got 3"),
        (lambda s: s.update(kernel_name=3), "kernel_name expects text"),
        (lambda s: s.update(kernel_name="y"), "kernel_name is 'y', but the program is named 'scale'"),
        (lambda s: s.update(pool_size=-1), "pool_size expects an integer"),
        (lambda s: s.update(pool_size=128), "pool_size is 128, but the program's pool has 1536 bytes"),
        (lambda s: s["args"].pop(), "has 1 arguments, but the program has 2"),
        (change_arg("arg_index", 1), "args[0]: arg_index expects 0, but got 1"),
        (change_arg("name", "z"), "argument 0: name is 'z', but 'x' in the program"),
        (change_arg("role", "output"), "argument 0: role is 'output', but 'input' in the program"),
        (change_arg("role", "inout"), "args[0]: role expects one of input"),
        (
            change_arg("dtype", "float64"),
            "args[0]: dtype expects one of float16, bfloat16, float32, int32, float8_e4m3fn, float8_e5m2, int8, "
            "float8_e4m3fn_x2, float8_e5m2_x2, int8_x2, but got 'float64'",
        ),
        (change_arg("dtype", "float32"), "args[0].layout: device_dtype expects IEEE_FP32 for float32"),
        (change_arg("shape", [70, 3]), "args[0]: shape is [70, 3], but the layout's size is [3, 70]"),
        (change_arg("host", None), "args[0]: host is missing"),
        (change_arg("host", {}, 1), "a pool argument has no host view"),
        (change_arg("role", "iota"), "args[0]: an iota expects dtype int32, but got float16"),
        (change_host("arg", 2**16), "args[0].host: arg expects an integer of 0 to 65535"),
        (change_arg("layout", []), "args[0].layout: expects an object"),
        (change_layout("size", [3, 0]), "size expects at most 64 integers of 1"),
        (change_layout("device_size", [2, 3, 32]), "expects a last dimension of 64 lanes"),
        (change_layout("device_size", [4, 3, 64]), "argument 0: sticks is 12, but 6 in the program"),
        (change_layout("device_size", [1, 3, 64]), "[3, 70] does not fit into device_size [1, 3, 64]"),
        (change_layout("stride_map", [64, 1]), "stride_map expects 3 strides"),
        (change_layout("element_arrangement", "ODD"), "element_arrangement expects one of STANDARD"),
        (change_host("strides", [1]), "args[0].host: strides expects 2 values, but got 1"),
        (change_host("size", [3, 71]), "args[0].host: [3, 71] has 213 elements"),
        (change_host("offset", -1), "offset expects an integer of 0"),
        (change_host("offset", True), "offset expects an integer of 0"),
    ],
)
def test_wrong_spec(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(PackageError) as e:
        read(with_spec(change))
    assert message in str(e.value)


def test_all_problems_are_listed() -> None:
    def change(spec: dict[str, Any]) -> None:
        change_arg("dtype", 5)(spec)
        change_host("offset", "x")(spec)
        spec["pool_size"] = None
        spec["unknown keys"] = "are ignored"

    with pytest.raises(PackageError) as e:
        read(with_spec(change))
    assert len(e.value.problems) == 3
    assert len(str(e.value).splitlines()) == 3


def test_disagreeing_package_is_not_written() -> None:
    p = package()
    with pytest.raises(PackageError, match="but the program is named 'scale'"):
        Package(p.program, LaunchSpec("x", 1536, p.launch_spec.args)).to_files()
    with pytest.raises(PackageError, match="no file of a package"):
        Package(p.program, p.launch_spec, {"program.bin": b""}).to_files()
    p.program.sources = p.program.sources[:1]
    with pytest.raises(PackageError, match="carries source id 1"):
        p.to_files()


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="cannot read"):
        read(tmp_path / "nothing")
    package().write(tmp_path)
    (tmp_path / "more").mkdir()
    with pytest.raises(PackageError, match="'more' is no plain file"):
        read(tmp_path)


def test_a_package_is_written_over_another_one(tmp_path: Path) -> None:
    made = package()
    made.files[TARGET] = b'name = "small"\ncores = 8\n'
    made.write(tmp_path)
    assert read(tmp_path).target.name == "small"
    package().write(tmp_path)
    assert read(tmp_path).target is DATASHEET
    (tmp_path / "thesis.tex").write_text("")
    there = {place.name: place.read_bytes() for place in tmp_path.iterdir()}
    with pytest.raises(PackageError, match=r"a package has a folder of its own: 'thesis\.tex' is no file of a package"):
        made.write(tmp_path)
    assert there == {place.name: place.read_bytes() for place in tmp_path.iterdir()}


def test_a_folder_of_something_else_stays(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(PackageError, match="is no package: it has none of the files") as refused:
        read(tmp_path)
    assert "remove the folder" not in str(refused.value)


def test_what_is_no_folder_is_not_to_be_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, message in (("file", "is no package: it is no folder"), ("nothing", "cannot read it: no such folder")):
        with pytest.raises(PackageError) as refused:
            read(tmp_path / name)
        assert str(refused.value) == f"error: {tmp_path / name}: {message}"


def test_oversized(tmp_path: Path) -> None:
    package().write(tmp_path)
    with (tmp_path / "allocated.ktir.mlir").open("r+b") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(PackageError, match="more than"):
        read(tmp_path)


def accepted(files: dict[str, bytes]) -> Package | None:
    with suppress(KtirError):
        return read(files)
    return None


@pytest.mark.turn
def test_every_flipped_byte_and_every_truncation() -> None:
    for name, data in FILES.items():
        for n in range(len(data)):
            flipped = data[:n] + bytes([data[n] ^ (1 << n % 8)]) + data[n + 1 :]
            assert accepted({**FILES, name: flipped}) in (None, package())
            assert accepted({**FILES, name: data[:n]}) in (None, package())


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_hostile_files(data: st.DataObject) -> None:
    """Damage that the hashes do not show: a manifest that fits, and whatever inside."""
    name = data.draw(st.sampled_from(["launch_spec.json", "debug.json"]))
    old = FILES[name]
    at = data.draw(st.integers(0, len(old) - 1))
    piece = data.draw(st.sampled_from([b"", b"0", b"-", b"9" * 30, b"1e9", b"null", b"[", b"}", b'"', b"\xff", b"true", b"{}"]))
    found = accepted(with_file(name, old[:at] + piece + old[at + data.draw(st.integers(0, 9)) :]))
    if found is not None:
        assert accepted(found.to_files()) == found


@given(st.binary(max_size=300))
def test_random_program(data: bytes) -> None:
    assert accepted(with_file("program.bin", data)) is None


def test_hash_is_plain_sha256() -> None:
    parts = b"".join(len(x).to_bytes(8, "little") + x for n in sorted(FILES) for x in (n.encode(), FILES[n]))
    assert content_hash(FILES) == sha256(parts).hexdigest()


def _nested(values: int) -> bytes:
    return b"[" + b"[0]," * values + b"0]"


@pytest.mark.parametrize(
    "data",
    [b"[" * 1_000_000, b'{"a":' * 100_000, _nested(6_000_000), b'"' + b'\\"' * 2_000_000, b" " * (1 << 27), b"9" * 10_000_000],
    ids=["lists", "objects", "values", "quotes", "blanks", "digits"],
)
@pytest.mark.parametrize("name", ["launch_spec.json", "debug.json"])
def test_json_is_bounded_before_it_is_read(data: bytes, name: str) -> None:
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(PackageError, match=name):
            read(with_file(name, data))
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
        assert time.process_time() - began < 5
    finally:
        tracemalloc.stop()


def test_links_pipes_and_folders_are_not_opened(tmp_path: Path) -> None:
    for make in (lambda p: p.symlink_to("/dev/zero"), lambda p: p.symlink_to(tmp_path / "real"), os.mkfifo, Path.mkdir):
        folder = tmp_path / "p"
        for name, data in FILES.items():
            folder.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        (tmp_path / "real").write_bytes(FILES["debug.json"])
        (folder / "debug.json").unlink()
        make(folder / "debug.json")
        with pytest.raises(PackageError, match=r"'debug\.json' is no plain file") as found:
            read(folder)
        assert str(folder) in str(found.value)
        assert "remove the folder and compile again" in str(found.value.diagnostics[-1])
        shutil.rmtree(folder)


def test_text_is_utf_8() -> None:
    with pytest.raises(PackageError, match=r"allocated\.ktir\.mlir: is not UTF-8 text: byte 1 is 0xff"):
        read(with_file("allocated.ktir.mlir", b"a\xffb"))
