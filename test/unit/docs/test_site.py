"""The site builds without a warning; its links lead somewhere; in a browser nothing sticks out or is cut, and the search finds pages."""

from __future__ import annotations

import contextlib
import functools
import json
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest

pytestmark = pytest.mark.turn  # most of it is to build the site once
DOCS = Path(__file__).resolve().parents[3] / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (1280, 390)
"""Of a window on a desk, and of a phone."""
PARTS = 5
"""In which the pages are looked at."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(folder / "cache"), str(DOCS)]
    done = subprocess.run([*command, str(folder / "html")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Page(HTMLParser):
    """The places of a page, and where its links lead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Takes what a tag names."""
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.places.add(value or "")
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken(site: Path) -> list[str]:
    """Links within the site that lead nowhere: page, link."""
    found: list[str] = []
    pages = {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(urljoin(f"/{name}", link))
            if parts.scheme or parts.netloc:
                continue
            target, place = unquote(parts.path).lstrip("/"), unquote(parts.fragment)
            if not (site / target).is_file() or (place and target in pages and place not in pages[target].places):
                found.append(f"{name}: {link}")
    return found


def test_links(site: Path) -> None:
    page = (site / "generated" / "dialects" / "ktdp.html").read_text()
    assert 'id="ktdp-load"' in page
    assert "Effects and traits" in page
    assert broken(site) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="sub/b.html#there">b</a><a href="https://elsewhere.org/x">x</a><img src="no.svg">'
    )
    (tmp_path / "sub" / "b.html").write_text('<a href="../a.html#here">a</a><a href="#there">b</a><a href="../c.html">c</a>')
    assert broken(tmp_path) == ["a.html: sub/b.html#there", "a.html: no.svg", "sub/b.html: #there", "sub/b.html: ../c.html"]


class Served(SimpleHTTPRequestHandler):
    """Serves the site, and takes what the driver has seen."""

    seen: queue.Queue[Any]

    def do_POST(self) -> None:
        """Takes the report."""
        self.seen.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def handle(self) -> None:
        """Takes requests; the browser may leave when it has seen enough."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[tuple[str, queue.Queue[Any]]]:
    """Where the site is served, and what is reported there."""
    handler = type("Handler", (Served,), {"seen": queue.Queue()})
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler.seen  # type: ignore[attr-defined]
        server.shutdown()


def driven(site: Path, address: tuple[str, queue.Queue[Any]], profile: Path, pages: list[str], words: list[str]) -> dict[str, Any]:
    """What a browser sees on these pages, at both widths, and finds for these words."""
    assert CHROMIUM
    job = json.dumps({"pages": pages, "widths": WIDTHS, "words": words})
    script = (Path(__file__).parent / "site_driver.js").read_text().replace("JOB", job, 1)
    (site / "driver.html").write_text(f"<body><script>{script}</script></body>")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", f"--user-data-dir={profile}"]
    where, seen = address
    with subprocess.Popen([*command, "--remote-debugging-port=0", f"{where}/driver.html"], stderr=subprocess.DEVNULL) as browser:
        try:
            return seen.get(timeout=300)
        finally:
            browser.terminate()
            (site / "driver.html").unlink()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
@pytest.mark.parametrize("part", range(PARTS))
def test_in_a_browser(part: int, site: Path, address: tuple[str, queue.Queue[Any]], tmp_path: Path) -> None:
    pages = sorted(p.relative_to(site).as_posix() for p in site.rglob("*.html") if p.name not in ("search.html", "genindex.html"))
    seen = driven(site, address, tmp_path, pages[part::PARTS], ["stick", "autotune", "construct_memory_view"])
    assert seen["errors"] == []
    assert seen["broken"] == []
    assert seen["wide"] == []
    assert seen["cut"] == [], "words of tables are whole"
    assert seen["looked"] > 100
    assert "Sticks" in seen["searched"]["stick"]
    assert "The kernel language" in seen["searched"]["autotune"]
    assert len(seen["searched"]["construct_memory_view"]) >= 2
    light, dark = seen["themes"]["light"], seen["themes"]["dark"]
    assert light["ground"] != dark["ground"]
    assert min(light["text"], dark["text"]) >= 7
    assert min(light["code"], dark["code"]) >= 4.5, "each colour of code can be read"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
def test_what_sticks_out_is_noticed(site: Path, address: tuple[str, queue.Queue[Any]], tmp_path: Path) -> None:
    text = (site / "tutorials" / "first-model.html").read_text()
    wide = '<pre style="white-space:pre">' + "x" * 400 + '</pre><img src="no.svg"><p style="width:2000px"></p>'
    wide += '<table><tr><td style="width:1em;max-width:1em;overflow-wrap:anywhere">narrow</td></tr></table>'
    (site / "wide.html").write_text(
        text.replace("<article", f"<article><article>{wide}</article></article><article", 1).replace('"../', '"')
    )
    seen = driven(site, address, tmp_path, ["wide.html"], [])
    (site / "wide.html").unlink()
    assert sum("pre 'xxx" in line for line in seen["wide"]) == len(WIDTHS)
    assert sum(" p '" in line for line in seen["wide"]) == len(WIDTHS)
    assert len(seen["cut"]) == len(WIDTHS)
    assert [line.rpartition("/")[2] for line in seen["broken"]] == ["no.svg"] * len(WIDTHS)
