"""`torch.compile(model, backend="spyre")` down to the emulated instruction stream, and the packages that it leaves behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import warm
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

from ktir.version import sources_hash


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(65), nn.Linear(65, 100), nn.Linear(100, 65)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(self.norm(x)))) + x


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    torch._dynamo.reset()


@pytest.mark.usefixtures("on_chip")
def test_values_and_caches(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Model().half(), torch.randn(57, 65).half()
    with fresh_cache(), torch.no_grad():
        expected = model(x)
        compiled = torch.compile(model, backend="spyre", dynamic=False, options={"cores": 8})
        torch.testing.assert_close(compiled(x), expected, rtol=4e-3, atol=4e-3)
        (package,) = (p for p in (tmp_path / "packages").iterdir() if p.name != "machines")  # which is there where a machine took long
        assert {"spyrecode.json", "program.bin", "launch_spec.json"} <= {p.name for p in package.iterdir()}
        torch._dynamo.reset()
        counters.clear()
        again = torch.compile(model, backend="spyre", dynamic=False, options={"cores": 8})
        torch.testing.assert_close(again(x), expected, rtol=4e-3, atol=4e-3)
        assert counters["inductor"]["fxgraph_cache_hit"] == 1


@pytest.mark.usefixtures("on_chip")
@pytest.mark.parametrize("dynamic", [None, True])
def test_other_shapes_compile_anew(dynamic: bool | None) -> None:
    """Dynamo's second shape is symbolic; each combination of sizes gets a program of its own, more than Dynamo's own limit."""
    layer = nn.Linear(10, 20).half()
    compiled = torch.compile(layer, backend="spyre", dynamic=dynamic)
    with fresh_cache(), torch.no_grad():
        for rows in (57, 18, 5, 57, 1, 2, 64, 65, 66, 67, 68, 18):
            x = torch.randn(rows, 10).half()
            torch.testing.assert_close(compiled(x), layer(x), rtol=4e-3, atol=4e-3)


@pytest.mark.usefixtures("on_chip")
def test_stages_are_dumped(tmp_path: Path) -> None:
    with fresh_cache(), torch.no_grad():
        torch.compile(torch.relu, backend="ktir", dynamic=False)(torch.ones(57, 10).half())
        torch._dynamo.reset()  # the caches know the graph now
        torch.compile(torch.relu, backend="ktir", dynamic=False, options={"dump_dir": str(tmp_path / "stages")})(torch.ones(57, 10).half())
    (graph,) = (tmp_path / "stages").iterdir()
    assert graph.name.startswith("forward_")
    assert json.loads((graph / "region.json").read_text())["name"] == "forward"
    assert any(p.name.endswith("_logical.ktir.mlir") for p in graph.iterdir())


_SAVE = """
import sys, torch
path, x = sys.argv[1], torch.arange(570).reshape(57, 10).half() / 100
with torch.no_grad():
    y = torch.compile(lambda x: torch.softmax(x, -1), backend="spyre", dynamic=False)(x)
assert torch.allclose(y, torch.softmax(x, -1), atol=4e-3)
from ktir.runtime import metrics
assert metrics.total() == metrics.Launches(chip=1)
open(path, "wb").write(torch.compiler.save_cache_artifacts()[0])
"""
_LOAD = """
import sys, torch
import ktir.lowering.inductor
from torch._dynamo.utils import counters
path, x = sys.argv[1], torch.arange(570).reshape(57, 10).half() / 100
info = torch.compiler.load_cache_artifacts(open(path, "rb").read())
assert len(info.artifacts["ktir_package"]) == 1
with torch.no_grad():
    y = torch.compile(lambda x: torch.softmax(x, -1), backend="spyre", dynamic=False)(x)
assert torch.allclose(y, torch.softmax(x, -1), atol=4e-3)
from ktir.runtime import metrics
assert metrics.total() == metrics.Launches(chip=1)
assert counters["inductor"]["fxgraph_cache_hit"] == 1 and not counters["inductor"]["fxgraph_cache_miss"], dict(counters["inductor"])
"""


@pytest.mark.turn
def test_artifacts_move_to_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first process the entry point is enough to find the backend; nothing of ktir is imported."""
    before = sources_hash.__wrapped__()
    for name, code in (("save", _SAVE), ("load", _LOAD)):
        monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / name / "packages"))
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / name / "inductor"))
        script = ["-c", code, str(tmp_path / "artifacts.bin")]
        if name == "save":
            done = subprocess.run([sys.executable, *script], cwd=tmp_path, capture_output=True, text=True)
        else:
            done = warm.run(*script, cwd=tmp_path)
        if sources_hash.__wrapped__() != before:
            pytest.skip("a source file of ktir was edited meanwhile, so the second process rightly misses the cache")
        assert done.returncode == 0, done.stderr
