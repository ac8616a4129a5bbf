"""Processes that do one thing after another for a campaign: a crash or a hang costs one thing."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any


class Worker:
    """A process that runs `script --worker`: a line of JSON to it is a request, the next line from it the answer."""

    def __init__(self, script: str | Path) -> None:
        command = [sys.executable, str(script), "--worker"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )

    def ask(self, request: Any, timeout: float) -> Any:
        """The answer, or a text: why there is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            return f"the process ended with status {self._process.wait()}"
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ready:
            return f"more than {timeout:.0f} s"
        line = self._process.stdout.readline()
        return json.loads(line) if line else f"the process ended with status {self._process.wait()}"

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
