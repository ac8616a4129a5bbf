# pyright: reportMissingImports=false
"""`vllm serve` on loopback."""

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import openai


class Server(NamedTuple):
    """The model's folder, a client, the address, and the number of the process."""

    folder: str
    client: openai.OpenAI
    address: str
    process: int


@contextmanager
def serve(folder: str, *options: str, log: Path | None = None) -> Iterator[Server]:
    """A server that is asked to go at the end, and does; its log lies beside the model, or elsewhere if asked."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = (log or Path(folder) / "server.log").open("w")
    vllm = str(Path(sys.executable).with_name("vllm"))
    process = subprocess.Popen(
        [vllm, "serve", folder, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny", *options], stdout=out, stderr=out
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            assert process.poll() is None, Path(out.name).read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5)
                break
            except OSError:
                time.sleep(1)
        yield Server(folder, openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0), address, process.pid)
        process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        assert process.wait(30) == 0
        assert time.monotonic() - start < 5
    finally:
        if process.poll() is None:
            process.kill()
