"""What compilations under pytest take time for and no test reads: called when the tests are collected, in every environment of tests."""

from __future__ import annotations

import logging
import sys


def quiet() -> None:
    # pytest listens to every logger that does not propagate; where somebody listens to this one, torch prints each stage of each graph,
    # and we each stage of each kernel.
    logging.getLogger("torch.__trace").propagate = True
    # After each compilation torch empties the processor's caches to time the guards once, and describes for its log what is in the key.
    if (guards := sys.modules.get("torch._dynamo.guards")) is not None:
        vars(guards)["profile_guard_manager"] = lambda *_: 0.0
    if (caches := sys.modules.get("torch._inductor.codecache")) is not None:
        caches.FxGraphCachePickler.debug_lines = lambda *_: []
