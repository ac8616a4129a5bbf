"""The explorer's page: what is gathered, what is in the file, and what it does in a browser."""

from __future__ import annotations

import html
import itertools
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

from ktir.assembly import parse_module
from ktir.context import context
from ktir.device.autoload import register
from ktir.diagnostics import KtirError
from ktir.explore import page
from ktir.explore.gather import Explored
from ktir.explore.lines import Places, lines_of
from ktir.isa.units import Unit
from ktir.runtime import metrics
from ktir.tools.pages.ktir_explore import explore

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Net(nn.Module):
    """Three lines of source; the first one has a matmul, the last one a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(64, 128)
        self.b = nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.a(x))
        y = self.b(h)
        return torch.softmax(y, -1)


@pytest.fixture(scope="module")
def explored() -> Explored:
    return explore("a <small> net", Net().half().eval(), torch.randn(32, 64).half())


def line_of(text: str) -> int:
    return next(k for k, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == text)


def test_locations_are_those_at_the_ends_of_lines() -> None:
    text = """
        func.func @f(%a: index loc("-":1:2)) -> index {
          %0 = arith.addi %a, %a {s = "loc(\\"#loc1)"} : index loc(fused["mm"("/m.py":9:1), "/m #loc2.py":10:3])
          scf.for %i = %a to %a step %a {
          } loc(callsite("/m.py":12:1 at "/other (1).py":3:1))
          return %0 : index
        } loc("f")
    """
    places = Places()
    with context():
        found = lines_of(parse_module(text), places)
    assert [line.text.strip() for line in found] == [
        "module {",
        "func.func @f(%arg0: index) -> index {",
        '%0 = arith.addi %arg0, %arg0 {s = "loc(\\22#loc1)"} : index',
        "scf.for %arg1 = %arg0 to %arg0 step %arg0 {",
        "}",
        "return %0 : index",
        "}",
        "}",
    ]
    known = [("/m.py", 9, "mm"), ("/m #loc2.py", 10, ""), ("/m.py", 12, ""), ("/other (1).py", 3, ""), ("", 0, "f")]
    of = [[known.index(place) for place in (list(places.known)[n] for n in line.places) if place in known] for line in found]
    assert of == [[], [4], [0, 1], [2, 3], [2, 3], [], [4], []]


def test_every_level_knows_the_source(explored: Explored) -> None:
    kinds = [v.kind for v in explored.views]
    assert (kinds[0], kinds[-1]) == ("graph", "assembly")
    assert {"logical", "ktir-tile", "ktir-allocate-scratchpad"} <= {v.name for v in explored.views}
    lines = [line_of(text) for text in ("h = torch.relu(self.a(x))", "y = self.b(h)", "return torch.softmax(y, -1)")]
    of = [{explored.places.number(p) for p in explored.places.known if p[:2] == (__file__, n)} for n in lines]
    for view in explored.views:
        here = {p for line in view.lines for p in line.places}
        assert all(here & places for places in of), view.name
    (run,) = explored.runs
    assert all({p for s in run.slices for p in s.places} & places for places in of)
    assert all({p for s in run.lives for p in s.places} & places for places in of)
    assert sum(k["cycles"] for k in run.kernels) == run.cycles == max(s.end for s in run.slices)
    assert "matmul" in run.kernels[0]["does"]
    assert [row for row in run.rows if row in Unit.__members__] == [u.name for u in Unit]
    assert {s.row for s in run.slices} <= set(run.rows)


def test_slices_of_a_row_do_not_overlap(explored: Explored) -> None:
    rows: dict[str, list[tuple[float, float]]] = {}
    for s in explored.runs[0].slices:
        rows.setdefault(s.row, []).append((s.begin, s.end))
    for spans in rows.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_what_is_written_is_read(explored: Explored, tmp_path: Path) -> None:
    page.write(explored, tmp_path / "a.html")
    data = page.read(tmp_path / "a.html")
    assert data == json.loads(json.dumps(page.data_of(explored)))
    assert "http" not in re.sub(r'<script id="data".*?</script>', "", (tmp_path / "a.html").read_text())
    page.write(explored, tmp_path / "b.html", tmp_path / "a.html")
    both = page.read(tmp_path / "b.html")
    assert [v["name"] for v in both["views"] if v["kind"] == "before"] == [f"before: {v['name']}" for v in data["views"]]
    texts = [[both["lines"][n][0] for n in v["lines"]] for v in both["views"]]
    assert texts[: len(data["views"])] == texts[len(data["views"]) :]


@pytest.mark.parametrize("text", ["", "<html></html>", '<script id="data" type="application/octet-stream">eJw=</script>', "\0"])
def test_what_is_no_page(text: str, tmp_path: Path) -> None:
    (tmp_path / "no.html").write_text(text)
    with pytest.raises(KtirError, match=r"no\.html"):
        page.read(tmp_path / "no.html")
    with pytest.raises(KtirError, match="cannot read page"):
        page.read(tmp_path / "missing.html")


ACTIONS = (Path(__file__).parent / "actions.js").read_text()


def in_browser(place: Path, size: str = "1500,900") -> dict[str, Any]:
    """What the actions have seen on a page."""
    assert CHROMIUM
    text = place.read_text()
    place.with_suffix(".driven.html").write_text(text.replace("</body>", f"<script>{ACTIONS}</script></body>"))
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={size}",
        "--virtual-time-budget=20000",
        "--dump-dom",
    ]
    run = subprocess.run([*command, place.with_suffix(".driven.html").as_uri()], capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="seen">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found, run.stderr[-2000:]
    said = json.loads(html.unescape(found[1]))
    assert said["errors"] == []
    return said["seen"]


def cost_of(explored: Explored, line: int) -> str:
    """What the page says of a line: the unit that works longest for what comes from it."""
    (run,) = explored.runs
    here = {n for p, n in explored.places.known.items() if p[:2] == (__file__, line)}
    units: Counter[str] = Counter()
    for s in run.slices:
        if s.row in Unit.__members__ and not s.wait and here & set(s.places):
            units[s.row] += round(s.end - s.begin)
    ((unit, cycles),) = units.most_common(1)
    return f"{unit} works {cycles:,} of {run.cycles:,} cycles for this"


def test_instructions_know_their_nodes() -> None:
    """Of two nodes on one line each has its own instructions, slices and boxes."""

    def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1).sum(0) @ w

    found = explore("nodes", twice, torch.zeros(64, 128).half(), torch.zeros(128, 128).half())
    place = twice.__code__.co_firstlineno + 1
    nodes = {p[2]: n for p, n in found.places.known.items() if p[:2] == (__file__, place)}
    (run,) = found.runs
    assembly = next(v for v in found.views if v.kind == "assembly")
    for having in ([line.places for line in assembly.lines], [s.places for s in run.slices], [v.places for v in run.lives]):
        here = [set(p) for p in having if set(p) & set(nodes.values())]
        mm, later = nodes["mm"], {n for name, n in nodes.items() if name not in ("mm", "")}
        assert any(mm in p and not p & later for p in here), "the product alone"
        assert any(mm not in p and p & later for p in here), "what comes after it"


@pytest.mark.turn
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
@pytest.mark.parametrize("size", ["1500,900", pytest.param("390,800", marks=pytest.mark.long)])
def test_in_a_browser(explored: Explored, tmp_path: Path, size: str) -> None:
    page.write(explored, tmp_path / "page.html")
    seen = in_browser(tmp_path / "page.html", size)
    cycles = f"{explored.runs[0].cycles:,}"
    assert seen["summary"] == f"{cycles} cycles on datasheet"
    (softmax,), graph = seen["pointed"]
    assert "torch.softmax" in softmax
    assert graph >= 5
    assert all(any(re.fullmatch(r"[A-Z]+ \d+(\.\d)?%", text) for text in pane) for pane in seen["costs"])
    assert seen["cost"] == cost_of(explored, line_of("return torch.softmax(y, -1)"))
    (line,), nodes, level, chosen = seen["clicked"]
    assert "self.b(h)" in line
    assert any("addmm" in n for n in nodes)
    assert not any("softmax" in n or "relu" in n for n in nodes)
    assert f"test_page.py:{line_of('y = self.b(h)')} addmm_1" in chosen
    assert level >= 3, "the pane goes there"
    assert seen["assembly"] > 0
    assert seen["kept"] == [line], "what is clicked stays while others are pointed at"
    assert seen["cleared"] == 0
    assert 'ktir.level = "tiled"' in seen["level"]
    assert f"source {sum('softmax' in text for text in Path(__file__).read_text().splitlines())}," in seen["searched"][0]
    assert seen["escaped"] == ["", 0]
    assert f"of {cycles}" in seen["zoomed"]
    assert f"cycles 0 to {cycles} of" not in seen["zoomed"]
    assert f"cycles 0 to {cycles} of {cycles}" in seen["whole"]
    assert "cycles" in seen["slice"][0]
    assert seen["slice"][1] > 0
    assert seen["lx"][0].startswith("core 0: ")
    assert seen["lx"][2] > 3, "something is drawn"
    assert seen["roofline"][2] > 3
    assert seen["kernels"][1] == 1 + len(explored.runs[0].kernels)
    assert "forward_kernel0" in seen["kernels"][0]
    assert seen["remarks"][1] == 1 + len(explored.remarks)
    assert "lines are new" in seen["compare"][0]
    assert "both are equal" in seen["equal"]
    assert len(seen["kernel"]) >= 3
    by_cycles = sorted(explored.runs[0].kernels, key=lambda k: -k["cycles"])
    assert seen["longest"] == [k["name"] for k in by_cycles]
    assert seen["shortest"] == seen["longest"][::-1]
    assert max(seen["gutters"]) < 120, "room for the text"
    check_widths(*seen["widths"], beside=size.startswith("1500"))


def check_widths(first: list[float], wide: list[float], again: list[float], dragged: list[float], *, beside: bool) -> None:
    """Panes that lie beside each other can be made wider by a button, and by their borders; those above each other fill the page."""
    assert max(first) - min(first) < 2
    assert again == first
    if not beside:
        assert wide == dragged == first
        return
    assert wide[2] == pytest.approx(sum(first) / 2, abs=2)
    assert max(wide[0], wide[1], wide[3]) == pytest.approx(sum(first) / 6, abs=2)
    assert dragged == pytest.approx([first[0] + 50, first[1] - 50, *first[2:]], abs=2)


@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_a_compiled_model_writes_its_page(device: str, tmp_path: Path, on_chip: None) -> None:
    register()
    torch._dynamo.reset()

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return torch.exp(y)

    x, place = torch.linspace(-2, 2, 100).reshape(4, 25), tmp_path / "two graphs.html"
    options: dict[str, Any] = {"explore": str(place)}
    found = torch.compile(broken, backend="spyre", options=options)(x.to(device))
    torch.testing.assert_close(found.cpu(), torch.exp(torch.relu(x.double()) + 1).float(), rtol=2**-22, atol=0)
    for name, op in (("two graphs.html", "relu"), ("two graphs-1.html", "exp")):
        data = page.read(tmp_path / name)
        assert any(op in data["lines"][n][0] for v in data["views"] if v["kind"] == "graph" for n in v["lines"])
        assert [s["name"] for s in data["sources"]] == [__file__]
        assert data["title"].startswith(f"{__file__}:")


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    torch._dynamo.reset()
    options: dict[str, Any] = {"explore": str(tmp_path / "no" / "page.html"), "fallback": "error"}
    with pytest.raises(BackendCompilerFailed, match=r"explore: cannot write '.*page\.html': No such file or directory"):
        torch.compile(torch.neg, backend="spyre", options=options)(torch.ones(3))
    with pytest.raises(BackendCompilerFailed, match="explore must be the path of a file, but got 3"):
        torch.compile(torch.neg, backend="spyre", options=options | {"explore": 3})(torch.ones(3))


def test_what_the_chip_does_not_take_runs_without_a_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    x, place = torch.linspace(-2, 2, 9, dtype=torch.float64), tmp_path / "page.html"
    options: dict[str, Any] = {"explore": str(place)}
    with metrics.counted() as launches:
        found = torch.compile(lambda x: x * 3 + 1, backend="spyre", options=options)(x)
    assert launches() == metrics.Launches(executor=1)
    assert torch.equal(found, x * 3 + 1)
    assert f"there is no page '{place}'" in caplog.text
    assert not place.exists()


def test_a_page_has_the_programs_that_the_chip_takes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x) @ x.T, torch.sin(y)

    torch._dynamo.reset()
    place = tmp_path / "page.html"
    options: dict[str, Any] = {"explore": str(place)}
    given = torch.linspace(-2, 2, 64 * 64).reshape(64, 64).half(), torch.linspace(-2, 2, 9, dtype=torch.float64)
    with torch.no_grad():
        torch.compile(both, backend="spyre", options=options)(*given)
    assert f"page '{place}' is without this program" in caplog.text
    data = page.read(place)
    assert len(data["runs"]) == 1
    assert {v["program"] for v in data["views"]} == {0}
    assert {v["kind"] for v in data["views"]} == {"graph", "level", "assembly"}
    assert data["runs"][0]["cycles"] > 0
