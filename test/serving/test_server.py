# pyright: reportMissingImports=false, reportOptionalMemberAccess=false
"""`vllm serve` on loopback, asked by the client that people use."""

import json
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import openai
import pytest
from loopback import Server, serve, start
from oracle import oracle
from tiny import WORDS, make

OPTIONS = "--dtype float16 --max-model-len 128 --max-num-seqs 4 --block-size 16 --max-num-batched-tokens 64"
GREEDY = {"ignore_eos": True, "return_token_ids": True}
CLIENTS, REQUESTS, MORE = 8, 200, 1000
MALFORMED: list[dict[str, Any]] = [
    {"prompt": [5] * 200},
    {"prompt": "x", "temperature": -1},
    {"prompt": "x", "model": "other"},
    {"prompt": "x", "max_tokens": 0, "n": 0},
    {"prompt": "x", "top_p": 7},
    {"prompt": {"text": "x"}},
    {"prompt": [WORDS]},
    {"extra_body": {"stop_token_ids": [WORDS], "min_tokens": 2}},
    {"extra_body": {"stop_token_ids": [-1]}},
    {"extra_body": {"top_k": 2**70}},
    {"extra_body": {"structured_outputs": {"regex": "["}}},
    {"extra_body": {"structured_outputs": {"json": {"type": "none"}}}},
    {"extra_body": {"structured_outputs": {"json": {"$ref": "#"}}}},
    {"extra_body": {"structured_outputs": {"json": {"type": "integer", "multipleOf": 5}}}},
    {"extra_body": {"structured_outputs": {"json": {"type": "string", "not": {"const": "x"}}}}},
    {
        "extra_body": {
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "required": ["x"]}}}
        }
    },
    {"extra_body": {"bad_words": [" "]}},
    {"extra_body": {"structured_outputs": {"grammar": "root ::= root"}}},
    {"extra_body": {"structured_outputs": {"regex": "x"}, "allowed_token_ids": [2]}},
    {"extra_body": {"structured_outputs": {"regex": "x"}, "ignore_eos": True}},
    {"extra_body": {"allowed_token_ids": [2], "min_tokens": 2}},
]
BODIES = [
    b"",
    b"[]",
    b"1",
    b"null",
    b'"x"',
    b"{",
    b"[" * 5000,
    b'{"prompt": 1, "stream_options": []}',
    b'{"messages": 5}',
    b'{"messages": [5]}',
]
ROUTES = ["v1/completions", "v1/chat/completions", "v1/responses", "v1/messages", "tokenize", "invocations"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(make("llama", tmp_path_factory.mktemp("model")), *OPTIONS.split()) as found:
        yield found


def test_a_completion_is_that_of_transformers(server: Server) -> None:
    folder, client = server.folder, server.client
    prompt, tokens = oracle(folder).fair([], 4, 1, 8)[0]
    found = client.completions.create(model="tiny", prompt=prompt, max_tokens=8, temperature=0, logprobs=1, extra_body=GREEDY)
    assert found.choices[0].model_extra["token_ids"] == tokens
    assert len(found.choices[0].logprobs.token_logprobs) == 8


def test_chat_samples_and_streams(server: Server) -> None:
    client = server.client
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0.8, "seed": 1}
    assert len(client.chat.completions.create(**asked, n=2, top_p=0.9).choices) == 2
    whole = client.chat.completions.create(**asked).choices[0].message.content
    parts = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**asked, stream=True) if chunk.choices]
    assert "".join(parts) == whole


def test_json_follows_its_schema(server: Server) -> None:
    client = server.client
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


def test_wrong_requests_are_refused_and_the_server_goes_on(server: Server) -> None:
    client, address = server.client, server.address
    for wrong in MALFORMED:
        with pytest.raises(openai.APIStatusError) as refused:
            client.completions.create(**{"model": "tiny", "prompt": "x", "max_tokens": 4} | wrong)
        assert 400 <= refused.value.status_code < 500, wrong
        assert refused.value.body["message"], wrong
    assert len(client.completions.create(model="tiny", prompt="x", max_tokens=2).choices) == 1
    assert "vllm:generation_tokens_total" in urllib.request.urlopen(f"{address}/metrics").read().decode()


def post(server: Server, route: str, body: bytes) -> tuple[int, Any]:
    """The status of an answer, and what it says."""
    asked = urllib.request.Request(f"{server.address}/{route}", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_wrong_bodies_are_refused(server: Server) -> None:
    for route, body in product(ROUTES, BODIES):
        status, found = post(server, route, body)
        assert status == 400, (route, body, found)
        assert found["error"]["message"] if "error" in found else found["detail"]  # SageMaker's part has a form of its own


def test_wrong_messages_are_refused(server: Server) -> None:
    """At the route of another API, which has errors of its own."""
    for wrong in ({"temperature": -1}, {"max_tokens": 200}, {"messages": []}, {"top_k": 2**70}):
        asked = {"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]} | wrong
        status, found = post(server, "v1/messages", json.dumps(asked).encode())
        assert status == 400, (wrong, found)
        assert found["error"]["message"]


def test_what_leaves_no_token_is_refused(server: Server) -> None:
    """Where an answer begins, or goes on; in streams too, and with all answers of a request."""
    client = server.client
    tokens = [post(server, "tokenize", json.dumps({"model": "tiny", "prompt": word}).encode())[1]["tokens"][-1] for word in "abc"]

    def asked(regex: str, allowed: list[int], **options: Any) -> Any:
        more = {"structured_outputs": {"regex": regex}, "allowed_token_ids": allowed}
        return client.completions.create(model="tiny", prompt="x", max_tokens=6, temperature=1, extra_body=more, **options)

    with pytest.raises(openai.BadRequestError, match="structured_outputs and allowed_token_ids leave no token that the answer could begin"):
        asked("[0-9]+", tokens, n=3)
    with pytest.raises(openai.APIError, match="leave no token that could follow the first 1 of the answer"):
        list(asked("a[0-9]", tokens, n=3, stream=True))
    nothing = {"type": "json_schema", "name": "x", "schema": {"type": "string", "pattern": r"[^\s\S]"}}
    *_, last = client.responses.create(model="tiny", input="x", max_output_tokens=9, text={"format": nothing}, stream=True)
    assert (last.type, last.code) == ("error", "400")
    assert "structured_outputs leave no token" in last.message
    assert {choice.text for choice in asked("bc|cb", [*tokens[1:], 2], n=3).choices} <= {"bc", "cb"}
    assert metric(server.address, "num_requests_running") == 0


def resident(process: int) -> int:
    """Kilobytes of a process and those below it."""
    own = next(line.split()[1] for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmRSS"))
    below = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(own) + sum(resident(int(child)) for child in below)


def metric(address: str, name: str) -> float:
    lines = urllib.request.urlopen(f"{address}/metrics").read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))


def test_many_clients_abort_and_err(server: Server) -> None:
    """Of 200 requests of 8 clients a tenth goes away after its first token, and a twentieth is malformed."""
    cases = [case for n in (5, 20, 70) for case in oracle(server.folder).fair([], n, 4, 8)]
    kinds = ["abort"] * (REQUESTS // 10) + ["malformed"] * (REQUESTS // 20)
    kinds += ["valid"] * (REQUESTS - len(kinds))
    random.Random(0).shuffle(kinds)

    def ask(number: int) -> str:
        prompt, tokens = cases[number % len(cases)]
        asked = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0, "extra_body": GREEDY}
        if kinds[number] == "malformed":
            try:
                server.client.completions.create(**asked | {"temperature": 1} | MALFORMED[number % len(MALFORMED)])
            except openai.APIStatusError as error:
                return "malformed" if 400 <= error.status_code < 500 else f"status {error.status_code}"
            return "a malformed request was answered"
        if kinds[number] == "abort":
            with server.client.completions.create(**asked | {"max_tokens": 30}, stream=True) as stream:
                next(iter(stream))
            return "abort"
        return "valid" if server.client.completions.create(**asked).choices[0].model_extra["token_ids"] == tokens else "other tokens"

    with ThreadPoolExecutor(CLIENTS) as clients:
        assert list(clients.map(ask, range(REQUESTS))) == kinds
    deadline = time.monotonic() + 10
    while metric(server.address, "num_requests_running") + metric(server.address, "num_requests_waiting"):
        assert time.monotonic() < deadline, "requests of clients that went away are still there"
        time.sleep(0.1)


def test_memory_stays_flat(server: Server) -> None:
    def ask(number: int) -> None:
        server.client.completions.create(model="tiny", prompt=[5 + number % 300, 6, 7], max_tokens=2)

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(ask, range(REQUESTS)))
        before = resident(server.process)
        list(clients.map(ask, range(MORE)))
    assert resident(server.process) < 1.05 * before


def test_a_start_can_be_stopped(tmp_path: Path) -> None:
    """While the server waits for its engine, which compiles."""
    log = tmp_path / "log"
    process, _ = start(make("llama", tmp_path / "model"), *OPTIONS.split(), log=log)
    try:
        while "Initializing a V1 LLM engine" not in log.read_text():
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.1)
        below = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{child}").exists() for child in below):
            assert time.monotonic() < deadline, "what it had started is still there"
            time.sleep(0.1)
    finally:
        if process.poll() is None:
            process.kill()
