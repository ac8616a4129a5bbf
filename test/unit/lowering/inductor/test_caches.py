"""Torch's caches carry our kernels, and never serve one that another version or other options made."""

import functools
import hashlib
import io
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache, run_and_get_code

import ktir.runtime
from ktir import config, version
from ktir.diagnostics import KtirError
from ktir.lowering.inductor import adapter, artifacts
from ktir.lowering.inductor.backend import compile_graph
from ktir.lowering.region_to_ktir.region import Region
from ktir.package import content_hash


class Store(ModuleType):
    """Stands in for the runtime's cache of packages; kernels do nothing."""

    def __init__(self) -> None:
        super().__init__("ktir.runtime.cache")
        self.packages: dict[str, dict[str, bytes]] = {}
        self.compiled: list[str] = []

    def store(self, key: str, files: dict[str, bytes], within: Any = None) -> None:
        if within is None:
            self.packages[key] = files

    def files(self, key: str, within: Any = None) -> dict[str, bytes]:
        if within is not None or key not in self.packages:
            raise KtirError("no such package")
        return self.packages[key]

    def kernel(self, key: str) -> Any:
        return lambda *tensors: None

    def compile_region(self, region: Region) -> str:
        files = {"module.json": region.to_json().encode(), "options": repr(config.current().key()).encode()}
        key = hashlib.sha256(repr(files).encode()).hexdigest()
        self.compiled.append(key)
        self.store(key, files)
        artifacts.record(key, files)
        return key


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    made = Store()
    monkeypatch.setitem(__import__("sys").modules, "ktir.runtime.cache", made)
    monkeypatch.setattr(ktir.runtime, "cache", made, raising=False)
    with fresh_cache():
        yield made


def double(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


def run(store: Store) -> dict[str, int]:
    """Compile in a new Dynamo; how often the FX cache hit, missed and was bypassed."""
    torch._dynamo.reset()
    counters.clear()

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return compile_graph(gm, inputs, store.compile_region)

    with torch.no_grad():
        torch.compile(double, backend=backend, dynamic=False)(torch.ones(57, 10).half())
    return {k: counters["inductor"][f"fxgraph_cache_{k}"] for k in ("hit", "miss", "bypass")}


def test_second_compile_is_a_hit(store: Store) -> None:
    assert run(store) == {"hit": 0, "miss": 1, "bypass": 0}
    assert run(store) == {"hit": 1, "miss": 0, "bypass": 0}
    assert len(store.compiled) == 1


def test_other_options_miss(store: Store) -> None:
    run(store)
    with config.patch(cores=4):
        assert run(store) == {"hit": 0, "miss": 1, "bypass": 0}
    assert run(store) == {"hit": 1, "miss": 0, "bypass": 0}
    with config.patch(forms_bytes=1 << 30):  # changes no code
        assert run(store) == {"hit": 1, "miss": 0, "bypass": 0}
    assert len(set(store.compiled)) == 2


def test_another_version_misses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store)
    monkeypatch.setattr(version, "sources_hash", lambda: "other sources")
    assert run(store) == {"hit": 0, "miss": 1, "bypass": 0}
    monkeypatch.setattr("ktir.version.__version__", "999")
    assert run(store) == {"hit": 0, "miss": 1, "bypass": 0}


def test_the_wrapper_holds_a_hash_and_not_the_kernel(store: Store) -> None:
    torch._dynamo.reset()

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return compile_graph(gm, inputs, store.compile_region)

    with torch.no_grad():
        _, (code,) = run_and_get_code(torch.compile(lambda x: torch.softmax(x, -1), backend=backend), torch.ones(57, 10).half())
    (key,) = store.compiled
    assert f"ktir_kernel_0 = ktir.runtime.cache.kernel('{key}')" in code
    assert "ktir_kernel_0(arg0_1, buf3)" in code
    assert "generic" not in code
    assert code.count("empty_strided_cpu((") == 1  # intermediates get no memory of the host


def test_a_hit_whose_package_is_gone_compiles_again(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    run(store)
    store.packages.clear()
    run(store)
    assert len(store.compiled) == 2
    assert len(store.packages) == 1
    assert "gone from ktir's" in caplog.text


def test_cache_artifacts_carry_packages(store: Store) -> None:
    from torch.compiler._cache import CacheArtifactManager

    with CacheArtifactManager.with_fresh_cache():
        run(store)
        run(store)  # a hit records nothing twice
        saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    data, info = saved
    assert info.artifacts[artifacts.KIND] == store.compiled
    files = dict(store.packages)
    store.packages.clear()
    with fresh_cache():
        loaded = torch.compiler.load_cache_artifacts(data)
        assert loaded is not None
        assert store.packages == files
        assert run(store) == {"hit": 1, "miss": 0, "bypass": 0}
    assert len(store.compiled) == 1


def test_a_program_names_the_lines_of_who_compiles_it(store: Store) -> None:
    """The same graph from another place is another program."""
    places = [{}, {}]
    exec(compile("def double(x):\n    return x.relu() * 2\n", "first.py", "exec"), places[0])
    exec(compile("\n\ndef double(x):\n    return x.relu() * 2\n", "second.py", "exec"), places[1])
    found = []
    for place in places:
        torch._dynamo.reset()

        def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
            return compile_graph(gm, inputs, store.compile_region)

        with torch.no_grad():
            torch.compile(place["double"], backend=backend, dynamic=False)(torch.ones(57, 10).half())
        found.append(store.packages[store.compiled[-1]]["module.json"].decode())
    assert len(store.compiled) == 2
    assert "first.py" in found[0]
    assert "second.py" in found[1]


def test_a_warm_start_is_saved_too(store: Store) -> None:
    from torch.compiler._cache import CacheArtifactManager

    run(store)
    with CacheArtifactManager.with_fresh_cache():
        assert run(store)["hit"] == 1
        saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    assert saved[1].artifacts[artifacts.KIND] == store.compiled


def test_packing() -> None:
    files = {"b.bin": bytes(range(256)), "a.json": b"{}"}
    assert artifacts.unpack(artifacts.pack(files)) == files
    assert artifacts.pack(files) == artifacts.pack(dict(reversed(files.items())))


def test_global_tables_are_restored() -> None:
    from torch._inductor import lowering
    from torch._inductor.codegen import common

    common.init_backend_registration()
    tables = (common.device_codegens, common.custom_backend_passes, common.custom_backend_codegen_configs)
    before = [list(t.items()) for t in tables], dict(lowering.user_lowerings)
    backend = adapter.backend_for("cpu", adapter.Scheduling, adapter.MarkRefused())
    with pytest.raises(ZeroDivisionError), backend, adapter.user_lowerings({}):
        raise ZeroDivisionError
    assert before == ([list(t.items()) for t in tables], dict(lowering.user_lowerings))


def test_sources_are_part_of_the_identity() -> None:
    assert len(version.sources_hash()) == 64
    assert version.sources_hash() in adapter.identity()


@pytest.mark.parametrize("name", ["../../../x", "/ktir-absolute", "a/b", "..", "a\\b", ".hidden"])
def test_nothing_is_written_outside_the_cache(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Whatever names an artifact has, and with the right hash."""
    home = tmp_path / "a" / "b" / "cache"
    monkeypatch.setenv("KTIR_CACHE_DIR", str(home))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "a" / "inductor"))
    for folder in (home, tmp_path / "a" / "inductor"):
        folder.mkdir(parents=True)
    files = {"launch_spec.json": b"{}", name: b"written"}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for each, data in files.items():
            archive.writestr(each, data)
    artifacts.PackageArtifact(content_hash(files), buffer.getvalue()).populate_cache()
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert not Path("/ktir-absolute").exists()
    assert caplog.text.count("is left out") == 1


@functools.cache
def _bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("program.bin", "w", force_zip64=True) as file:
        for _ in range(1024):
            file.write(bytes(1 << 20))
    return buffer.getvalue()


@pytest.mark.turn
@pytest.mark.parametrize("declared", [None, 1000])
def test_an_artifact_that_grows_is_not_unpacked(declared: int | None, caplog: Any) -> None:
    import tracemalloc

    content = _bomb()
    if declared is not None:  # a directory that promises less than comes out
        content = content.replace(struct.pack("<Q", 1 << 30), struct.pack("<Q", declared))
    assert len(content) < 2 << 20
    tracemalloc.start()
    try:
        artifacts.PackageArtifact("0" * 64, content).populate_cache()
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert "is left out" in caplog.text


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip", artifacts.pack({"a": b"x" * 1000})[:-30], artifacts.pack({"a": b"x"})[::-1]])
def test_a_damaged_artifact_is_left_out(content: bytes, caplog: Any) -> None:
    artifacts.PackageArtifact("0" * 64, content).populate_cache()
    assert "is left out" in caplog.text


def test_inputs_that_overlap_are_part_of_the_key() -> None:
    """Two views of one buffer, both written: what torch caches for one overlap is no program for another."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y.mul_(3)
        return x + y

    with fresh_cache():
        for first, second in ((slice(0, 4), slice(1, 5)), (slice(0, 4), slice(0, 4)), (slice(0, 4), slice(2, 6))):
            torch._dynamo.reset()
            ours, theirs = torch.arange(6.0), torch.arange(6.0)
            result = torch.compile(function, backend="ktir")(ours[first], ours[second])
            assert torch.equal(result, function(theirs[first], theirs[second]))
            assert torch.equal(ours, theirs)
