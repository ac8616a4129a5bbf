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


def start(folder: str, *options: str, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A server that is not there yet, and its address to be."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    vllm = str(Path(sys.executable).with_name("vllm"))
    command = [vllm, "serve", folder, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny", *options]
    with log.open("w") as out:
        return subprocess.Popen(command, stdout=out, stderr=out), f"http://127.0.0.1:{port}"


@contextmanager
def serve(folder: str, *options: str, log: Path | None = None) -> Iterator[Server]:
    """A server that is asked to go at the end, and does; its log lies beside the model, or elsewhere if asked."""
    log = log or Path(folder) / "server.log"
    process, address = start(folder, *options, log=log)
    try:
        for _ in range(300):
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5)
                break
            except OSError:
                time.sleep(1)
        yield Server(folder, openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0), address, process.pid)
        process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        assert process.wait(30) == 0
        assert time.monotonic() - asked < 5
    finally:
        if process.poll() is None:
            process.kill()
