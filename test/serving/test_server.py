# pyright: reportMissingImports=false, reportOptionalMemberAccess=false
"""`vllm serve` on loopback, asked by the client that people use."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from oracle import oracle
from tiny import make

OPTIONS = "--dtype float16 --max-model-len 128 --max-num-seqs 4 --block-size 16 --max-num-batched-tokens 64 --served-model-name tiny"
GREEDY = {"ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, openai.OpenAI, str]]:
    """The model's folder, a client, and the address; at the end the server is asked to go, and does."""
    folder = make("llama", tmp_path_factory.mktemp("model"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (Path(folder) / "server.log").open("w")
    vllm = str(Path(sys.executable).with_name("vllm"))
    process = subprocess.Popen(
        [vllm, "serve", folder, "--host", "127.0.0.1", "--port", str(port), *OPTIONS.split()], stdout=log, stderr=log
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            assert process.poll() is None, Path(log.name).read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5)
                break
            except OSError:
                time.sleep(1)
        yield folder, openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0), address
        process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        assert process.wait(30) == 0
        assert time.monotonic() - start < 5
    finally:
        if process.poll() is None:
            process.kill()


def test_a_completion_is_that_of_transformers(server: tuple[str, openai.OpenAI, str]) -> None:
    folder, client, _ = server
    prompt, tokens = oracle(folder).fair([], 4, 1, 8)[0]
    found = client.completions.create(model="tiny", prompt=prompt, max_tokens=8, temperature=0, logprobs=1, extra_body=GREEDY)
    assert found.choices[0].model_extra["token_ids"] == tokens
    assert len(found.choices[0].logprobs.token_logprobs) == 8


def test_chat_samples_and_streams(server: tuple[str, openai.OpenAI, str]) -> None:
    _, client, _ = server
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0.8, "seed": 1}
    assert len(client.chat.completions.create(**asked, n=2, top_p=0.9).choices) == 2
    whole = client.chat.completions.create(**asked).choices[0].message.content
    parts = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**asked, stream=True) if chunk.choices]
    assert "".join(parts) == whole


def test_json_follows_its_schema(server: tuple[str, openai.OpenAI, str]) -> None:
    _, client, _ = server
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    found = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=60,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    ).choices[0]
    if found.finish_reason == "stop":  # a model of random weights may fill its tokens with spaces
        assert json.loads(found.message.content)["a"] in (1, 2)
    else:
        assert found.message.content.lstrip().startswith("{")


def test_wrong_requests_are_refused_and_the_server_goes_on(server: tuple[str, openai.OpenAI, str]) -> None:
    _, client, address = server
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tiny", prompt=[5] * 200, max_tokens=1)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tiny", prompt="x", temperature=-1)
    assert len(client.completions.create(model="tiny", prompt="x", max_tokens=2).choices) == 1
    assert "vllm:generation_tokens_total" in urllib.request.urlopen(f"{address}/metrics").read().decode()
