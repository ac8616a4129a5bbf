"""Sphinx configuration of the site. The pages in `generated/` are written first, by `ktir.tools.pages.ktir_docs`."""

import sys
from pathlib import Path

from ktir import __version__
from ktir.tools.pages.ktir_docs import write_pages

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "ktir"
author = "The ktir authors"
copyright = "The ktir authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "mlir_lexer"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "examples", "README.md"]
highlight_language = "text"
myst_heading_anchors = 4

pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
smartquotes = False  # two hyphens begin an option
html_theme = "furo"
html_title = f"ktir {__version__}"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files, html_js_files = ["page.css"], ["page.js"]

_generated = HERE / "generated"
_written = set(write_pages(_generated))
for _page in set(_generated.rglob("*.md")) - _written:
    _page.unlink()
