"""``reasc serve`` as a user starts it: options, a file of them, and a process with the shipped model."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import typer
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from langchain_reasc_server.command import serve
from langchain_reasc_server.local import LangChainModel
from servers.chat_wire import Request
from servers.exchange import Exchange, refuses
from servers.fake_server import Served, serving
from servers.hostile_schemas import HOSTILE, arguments
from typer.testing import CliRunner

from langchain_reasc.cli.options import with_groups
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError, ReASCError

from .serving import HELLO, TOOL, Said, eventually, front, models
from .test_status import text_of

app = typer.Typer()
app.command()(with_groups(serve))
QUESTION = "Emma has 27 old and 14 new cups. How many more does Emma need to have 60?"


class Echoing(Said):
    """Repeat the user's text, or call the tool with it."""

    def called(self, request: Request, at: int) -> list[dict[str, Any]]:
        self.calls = lambda at: [("weather", request["messages"][-1]["content"])]
        return super().called(request, at)

    def said(self, request: Request, at: int) -> list[Sequence[str]]:
        return [[request["messages"][-1]["content"]]] * (request.get("n") or 1)


def run(*arguments: object) -> str:
    """Return the text on stderr. Raise the library's errors, whose messages ``reasc`` prints."""
    ended = CliRunner().invoke(app, [*map(str, arguments)])
    if isinstance(ended.exception, ReASCError):
        raise ended.exception
    if ended.exit_code == 2:  # typer's own error, in a box
        raise ConfigurationError(" ".join(re.sub("[│╭╮╰╯─]", "", ended.output).split()))
    assert ended.exit_code == 0, ended.output
    return " ".join(ended.stderr.split())


@pytest.fixture
def upstream() -> Iterator[Served]:
    with serving(Said(), get=models) as served:
        yield served


def test_check_asks_the_upstream_and_says_what_is_served(upstream: Served) -> None:
    said = run("--check", "--url", upstream.root, "--answer", "number", "--no-learning", "--preset", "generic")
    assert f"tiny at {upstream.root}" in said  # its only model needs no name
    assert "(number)" in said and "counting votes" in said
    assert upstream.gets == ["/v1/models"]


@pytest.mark.full
def test_check_asks_both_upstreams_and_says_where_contested_votes_go(upstream: Served) -> None:
    with serving(Said(), get=models) as larger:
        given = (
            "--url",
            upstream.root,
            "--preset",
            "generic",
            "--escalate-url",
            larger.root,
            "--price-ratio",
            "1,2,3,4",
        )
        said = run("--check", *given, "--no-learning")
        assert "→ tiny" in said and "3 equal votes" in said
        assert larger.requests and larger.gets, "it is asked what it supports"
        assert "learning" in run("--check", *given, "--within", "0.1")
    with pytest.raises(ReASCError, match="no server at"):
        run("--check", *given, "--escalate-model", "big")


def test_options_come_from_a_file_and_the_command_line_comes_first(upstream: Served, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(
        f'url = "{upstream.root}"\nmodel = "tiny"\npreset = "generic"\nanswer = "boxed"\nmax-samples = 3\n'
    )
    assert "(boxed)" in run("--check", "--config", config)
    given = ("--check", "--config", str(config), "--answer", "number", "--allow-path", "embeddings")
    checked = CliRunner().invoke(app, given)
    assert "(number)" in checked.stderr
    in_force = {name: (value, source) for name, value, source in re.findall(r"(\S+) = (.*?) +# (.*)", checked.stdout)}
    assert in_force["url"] == (f'["{upstream.root}"]', f"{config}:1") and in_force["max-samples"] == (
        "3",
        f"{config}:5",
    )
    assert in_force["answer"] == ('"number"', "command line") and in_force["port"] == ("8080", "default")
    again = tmp_path / "again.toml"
    again.write_text(checked.stdout)
    assert "(number)" in run("--check", "--config", again), "what is in force is a file of options"


def test_a_flag_of_a_file_is_switched_off_on_the_command_line(upstream: Served, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    flags = {"pass-keys": "true", "traces": "true", "learning": "false"}
    lines = [f"{name} = {value}\n" for name, value in flags.items()]
    config.write_text(f'url = "{upstream.root}"\nmodel = "tiny"\npreset = "generic"\n{"".join(lines)}')

    def in_force(*given: str) -> dict[str, str]:
        checked = CliRunner().invoke(app, ["--check", "--config", str(config), *given])
        return {name: value for name, value in re.findall(r"(\S+) = (\S+) +#", checked.stdout) if name in flags}

    assert in_force() == flags
    other = {"pass-keys": "false", "traces": "false", "learning": "true"}
    assert in_force("--no-pass-keys", "--no-traces", "--learning") == other


WRONG_VALUES = {
    "max-samples = '8'": "max-samples: Input should be a valid integer, got '8'",
    "max-samples = 8.5": "max-samples: Input should be a valid integer, got 8.5",
    "max_samples = true": "max_samples: Input should be a valid integer, got True",
    "traces = 'no'": "traces: Input should be a valid boolean, got 'no'",
    "keys = 3": "keys: Input should be a valid string, got 3",
    "[model-kwargs]\nkey = 'sk-secret'": "model-kwargs: Input should be a valid array, got dict",
    "max-sample = 8": "sets 'max-sample', which is not an option of reasc serve; did you mean 'max-samples'?",
    "api-key = 'sk-secret'": "sets 'api-key', which is not an option of reasc serve; did you mean 'key-variable'?",
    "url = 'http://a'\nmodel = 'b'\nkey-variable = 'sk-secret'": "give the name of the environment variable",
}


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_wrong_line_of_the_file_is_refused_by_its_number(case: str, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f"# options\n\n{case}\n")
    with pytest.raises(ReASCError, match=re.escape(WRONG_VALUES[case])) as refused:
        run("--check", "--config", config)
    assert f"{config}:3" in str(refused.value) or "variable" in str(refused.value)
    assert "sk-secret" not in str(refused.value)


def test_answers_of_the_shipped_model_are_numbers_and_those_of_another_are_messages() -> None:
    pytest.importorskip("llama_cpp")
    assert "(number)" in run("--check")
    assert "(choice)" in run("--check", "--answer", "choice")
    for other in (("--answer", "message"), ("--model", embedded_model_path())):
        assert "answers in text" not in run("--check", *other)


def test_the_first_request_of_the_page_gets_the_answer_that_it_shows() -> None:
    pytest.importorskip("llama_cpp")
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    [(shown, headers, answer)] = re.findall(
        r"^\$ (curl .*?\}')\n(.*?)\n\n\{.*?(\\boxed\{\d+\})", page, re.DOTALL | re.MULTILINE
    )
    _, _, address, _, kind, _, body = shlex.split(shown)
    votes = {"answer": "number", "calibration": "online"}  # what the command takes for the shipped model
    with ChatLlamaCpp(seed=1) as model, front(served=LangChainModel(model, "shipped"), votes=votes) as gateway:
        reply = gateway.post(json.loads(body), address.partition("/v1")[2])
    assert reply.request.headers["content-type"] == kind.partition(": ")[2]
    assert answer in reply.text
    assert {line.partition(":")[0] for line in headers.splitlines()} <= set(reply.headers)


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "an unknown name in the file": (("--config", "FILE"), "FILE:1 sets 'vibes', which is not an option"),
    "an unknown kind of log": (("--log", "everything"), "'requests', 'errors' or 'none', got 'everything'"),
    "no such file": (("--config", "nowhere.toml"), "cannot read nowhere.toml"),
    "learning and not": (("--no-learning", "--state", "s.json"), "--no-learning excludes"),
    "a calibration without a name": (("--offer", "c.json"), "--offer takes NAME=FILE, got 'c.json'"),
    "no such calibration": (("--offer", "math=no-such.json"), "no-such.json"),
    "two sources of knowledge": (("--calibration", "c.json", "--state", "s.json"), "--state keeps what is learned"),
    "keys for nobody": (("--pass-keys",), "--pass-keys needs --url"),
    "no keys in the file": (("--keys", "EMPTY"), "has no keys"),
    "an unknown answer": (("--answer", "vibes"), "vibes"),
    "an unknown rule": (("--rule", "vibes"), "no stopping rule is called 'vibes'"),
    "workers with a model each": (("--workers", "2"), "--workers needs --url"),
    "a larger model in this process": (
        ("--url", "http://a", "--model", "a", "--escalate-to", "b"),
        "at --escalate-url, not",
    ),
    "a name without a server": (("--escalate-model", "big"), "--escalate-model goes with --escalate-url"),
    "keys for two addresses": (
        ("--url", "http://a", "--model", "b", "--pass-keys", "--escalate-url", "http://c", "--escalate-model", "d"),
        "take both models from the same address",
    ),
    "no origin": (("--allow-origin", "chat.example.org"), "--allow-origin is 'chat.example.org'"),
    "nobody there": (("--url", "http://127.0.0.1:9", "--check"), "no server at"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_refused_in_a_line(case: str, tmp_path: Path) -> None:
    (tmp_path / "FILE").write_text("vibes = 1\n")
    (tmp_path / "EMPTY").write_text("# nobody yet\n")
    given, said = WRONG[case]
    with pytest.raises(ReASCError, match=re.escape(said)):
        run(*(tmp_path / one if one in ("FILE", "EMPTY") else one for one in given), "--check")


def test_traces_need_their_extra(upstream: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "langchain_reasc_server.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.asgi", None)
    with pytest.raises(MissingExtraError, match=re.escape('pip install "langchain-reasc[otel]"')):
        run("--check", "--url", upstream.root, "--preset", "generic", "--traces")


@contextmanager
def process(*arguments: str, path: str = "", **environment: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Start the command, and yield its base URL and process. Modules in the folder ``path`` come before all others."""
    script = "import typer; from langchain_reasc_server.command import *;"
    script += "from langchain_reasc.cli.options import *;"
    script += "app = typer.Typer(); app.command()(with_groups(serve)); app()"
    started = subprocess.Popen(
        [sys.executable, "-c", script, "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(one for one in [path, *sys.path] if one), **environment},
    )
    try:
        assert started.stderr is not None
        line = started.stderr.readline()
        yield line.split(" ")[0], started
    finally:
        started.terminate()  # workers would outlive a parent that is killed
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


OWN = """import sys
from langchain_core.language_models import SimpleChatModel

class Own(SimpleChatModel):
    @property
    def _llm_type(self):
        return "own"

    def _call(self, *args, **kwargs):
        return str("pint" in sys.modules)
"""


@pytest.mark.full
def test_the_units_are_loaded_before_the_first_response_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with process("--model-class", "own.Own", "--no-learning", path=str(tmp_path)) as (url, _):
        reply = httpx.post(f"{url}/chat/completions", json={"messages": HELLO}, timeout=60)
    assert reply.json()["choices"][0]["message"]["content"] == "True"


@pytest.mark.full
def test_a_process_answers_with_the_shipped_model_and_ends_when_told(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    state = tmp_path / "learned.sqlite"
    with process("--state", str(state), REASC_KEYS="sk-mine") as (url, started):
        asked = [{"role": "user", "content": QUESTION}]
        assert httpx.post(f"{url}/chat/completions", json={"messages": asked}).status_code == 401
        with openai.OpenAI(base_url=url, api_key="sk-mine", max_retries=0) as client:
            [model] = client.models.list()
            raw = client.chat.completions.with_raw_response.create(model=model.id, messages=asked)  # type: ignore[arg-type]
            reply = raw.parse()
            assert "\\boxed{" in str(reply.choices[0].message.content)
            assert int(raw.headers["x-reasc-samples"]) > 1
            pieces = client.chat.completions.create(model=model.id, messages=asked, seed=1, stream=True)  # type: ignore[call-overload]
            assert len([piece for piece in pieces if piece.choices and piece.choices[0].delta.content]) > 3
        started.send_signal(signal.SIGTERM)
        assert started.wait(120) == 0
        assert state.exists()


@pytest.mark.full
def test_a_process_answers_clients_of_anthropic_and_logs_no_key() -> None:
    pytest.importorskip("llama_cpp")
    anthropic: Any = pytest.importorskip("anthropic")
    asked: dict[str, Any] = {"model": "any", "max_tokens": 99, "messages": [{"role": "user", "content": QUESTION}]}
    with process("--no-learning", REASC_KEYS="sk-mine") as (url, started):
        root = url.removesuffix("/v1")
        with (
            anthropic.Anthropic(base_url=root, api_key="sk-other", max_retries=0) as stranger,
            pytest.raises(anthropic.AuthenticationError),
        ):
            stranger.messages.create(**asked)
        with anthropic.Anthropic(base_url=root, api_key="sk-mine", max_retries=0) as client:
            raw = client.messages.with_raw_response.create(**asked)
            assert "\\boxed{" in raw.parse().content[0].text and int(raw.headers["x-reasc-samples"]) > 1
            with client.messages.stream(**asked, extra_body={"temperature": 0}) as stream:
                assert len([*stream.text_stream]) > 3
        started.terminate()
        assert started.stderr is not None
        log = started.stderr.read()
        assert log.count("POST /v1/messages 200") == 2 and "401" in log and "sk-" not in log


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, Served]]:
    """A process in front of an upstream, whose answers each test chooses."""
    with serving(Said(), get=models) as served:
        options = ("--url", served.root, "--preset", "vllm", "--no-learning", "--timeout", "2")
        with process(*options) as (url, _):
            yield url, served


@pytest.mark.full
def test_a_schema_that_takes_for_ever_holds_nobody_else(running: tuple[str, Served]) -> None:
    """The server runs in another process, because a held interpreter lock would block this test too."""
    ended: list[int] = []
    url, upstream = running
    upstream.answer = Echoing()

    def ask(case: str, way: str, stream: bool) -> None:
        schema, value = HOSTILE[case]
        tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
        shape = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
        asked = {"tools": [tool]} if way == "tools" else {"response_format": shape}
        said = [{"role": "user", "content": json.dumps(arguments(value))}]
        body = {"model": "tiny", "messages": said, "stream": stream, **asked}
        ended.append(httpx.post(f"{url}/chat/completions", json=body, timeout=60).status_code)

    with ThreadPoolExecutor(4) as pool:
        short = [case for case, (_, value) in HOSTILE.items() if len(str(value)) < 1000]  # calls come in many pieces
        cases = [(case, "tools", False) for case in short] + [(case, "text", True) for case in HOSTILE]
        asked = [pool.submit(ask, *case) for case in cases]
        while not all(one.done() for one in asked):
            assert httpx.get(url.replace("/v1", "/health/live"), timeout=10).status_code == 200
            time.sleep(0.05)
        assert ended == [200] * len(cases), [one.exception() for one in asked]


@pytest.mark.full
def test_a_refusal_keeps_its_status_and_is_waited_for_some_seconds_and_no_more(running: tuple[str, Served]) -> None:
    body = {"model": "busy", "messages": HELLO, "tools": [TOOL]}  # the other tests ask another model
    url, busy = running
    for headers, stream in (({}, True), ({"retry_after": "2"}, True), ({"retry_after": "20"}, False)):
        busy.answer = refuses(429, **headers)
        busy.exchanges.clear()
        refused = httpx.post(f"{url}/chat/completions", json={**body, "stream": stream}, timeout=60)
        assert refused.status_code == 429 and refused.json()["error"]["message"] == "refused with 429"
        assert refused.headers.get("retry-after") == headers.get("retry_after")
        assert len(busy.requests) == (2 if stream else 1)


@pytest.mark.full
def test_a_silent_upstream_is_waited_for_as_long_as_the_operator_says(running: tuple[str, Served]) -> None:
    async def silent(exchange: Exchange) -> None:
        if exchange.body["user"] == "begun" and exchange.body.get("stream"):
            await exchange.begin_stream()
            await exchange.token("so")
        await exchange.hang()

    asked = {"model": "tiny", "messages": HELLO}
    ways = [(user, more, streamed) for user in ("", "begun") for more in ({}, {"tools": [TOOL]}) for streamed in (0, 1)]

    url, upstream = running
    upstream.answer = silent

    def ask(user: str, more: dict[str, Any], streamed: bool) -> tuple[httpx.Response, float]:
        began = time.monotonic()
        body = {**asked, **more, "user": user, "stream": bool(streamed)}
        return httpx.post(f"{url}/chat/completions", json=body, timeout=60), time.monotonic() - began

    with ThreadPoolExecutor(len(ways)) as threads:
        replies = threads.map(lambda way: ask(*way), ways)
        for (_, _, streamed), (reply, seconds) in zip(ways, replies, strict=True):
            assert seconds > 1.8
            assert '"code":"timeout"' in reply.text and "no answer in time" in reply.text
            assert reply.status_code == 504 or streamed
            assert reply.headers.get("x-accel-buffering") == ("no" if reply.status_code == 200 else None)


def _counted(url: str, name: str) -> float:
    """Return the sum of a counter."""
    lines = httpx.get(url.replace("/v1", "/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def _workers(of: int) -> set[int]:
    """Return the workers' process ids, without that of multiprocessing's resource tracker."""
    children = Path(f"/proc/{of}/task/{of}/children").read_text().split()
    return {int(pid) for pid in children if b"spawn_main" in _command_line(pid)}


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _started(of: int, url: str) -> set[int]:
    """Wait until both workers answer, and return them."""
    assert eventually(lambda: len(_workers(of)) == 2 and _is_answered(url), 90)
    return _workers(of)


def _is_answered(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(url.replace("/v1", "/health/live"), timeout=1).status_code == 200
    return False


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
def test_workers_count_and_learn_together_and_are_replaced(upstream: Served, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-mine\n")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], "tools": [TOOL]}
    mine: Any = {"json": body, "headers": {"authorization": "Bearer sk-mine"}, "timeout": 30}
    options = ("--url", upstream.root, "--preset", "generic", "--workers", "2", "--keys", str(keys), "--log", "none")
    secret = {"UPSTREAM_KEY": "sk-upstream-secret"}
    with process(*options, "--key-variable", "UPSTREAM_KEY", **secret) as (url, started):
        before = _started(started.pid, url)
        for _ in range(8):  # each on a connection of its own
            assert httpx.post(f"{url}/chat/completions", **mine).status_code == 200
        assert _counted(url, "reasc_requests_total") == _counted(url, "reasc_first_byte_seconds_count") == 8
        page = url.removesuffix("v1")
        assert eventually(lambda: "8 questions" in httpx.get(page, auth=("", "sk-mine")).text), "one store for both"
        assert not any(b"sk-" in _command_line(str(pid)) for pid in before)
        first = min(before)
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: first not in (now := _workers(started.pid)) and len(now) == 2, 90)
        assert httpx.post(f"{url}/chat/completions", **mine).status_code == 200
        assert _counted(url, "reasc_requests_total") == 9, "what the dead one counted stays"
        left = _workers(started.pid)
        started.send_signal(signal.SIGTERM)
        assert started.wait(120) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in left)
        assert started.stderr is not None and not started.stderr.read()


@pytest.mark.slow  # starts five processes
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
def test_workers_that_cannot_start_end_the_server(upstream: Served, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-mine\n")
    options = ("--url", upstream.root, "--preset", "generic", "--workers", "2", "--keys", str(keys))
    with process(*options) as (url, started):
        before = _started(started.pid, url)
        keys.unlink()
        os.kill(min(before), signal.SIGKILL)
        assert started.wait(90) != 0
        assert started.stderr is not None and str(keys) in started.stderr.read()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_in_use_is_an_error_of_one_line(workers: str, upstream: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        with pytest.raises(ReASCError, match=f"127.0.0.1:{port}"):
            run("--url", upstream.root, "--preset", "generic", "--workers", workers, "--port", port)


OPEN = {
    ("0.0.0.0",): True,
    ("::",): True,
    ("0.0.0.0", "--workers", "2"): True,
    ("0.0.0.0", "--keys"): False,
    ("0.0.0.0", "--pass-keys"): False,
    ("127.3.2.1",): False,
    ("localhost",): False,
    ("::1",): False,
}


@pytest.mark.full
@pytest.mark.parametrize("options", OPEN)
def test_a_server_that_is_open_to_everybody_warns_at_its_start(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("sk-mine\n")
    keys = [str(tmp_path / "keys")] if "--keys" in options else []
    upstream = ("--url", "http://127.0.0.1:9", "--model", "tiny", "--preset", "vllm")
    with process(*upstream, "--host", *options, *keys) as (url, started):
        assert eventually(lambda: _is_answered(url), 60)
        started.terminate()
        assert started.stderr is not None
        said = started.stderr.read()
    assert (f"warning: anyone who can connect to {options[0]}" in said and "--keys" in said) == OPEN[options]


HANGS = {
    "in Python": "while True: pass",
    "in a wait": "import time; time.sleep(10**6)",
    "in C, with the interpreter held": "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
}


@pytest.mark.slow  # starts three processes
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
@pytest.mark.parametrize("hangs", HANGS)
def test_a_worker_whose_event_loop_hangs_is_replaced(upstream: Served, hangs: str, tmp_path: Path) -> None:
    options = ("--url", upstream.root, "--preset", "generic", "--no-learning", "--workers", "2")
    fault = f"async def hang(*_):\n {HANGS[hangs]}\n"
    fault += "from langchain_reasc_server import app, processes\n"
    fault += "processes._STANDS_STILL = 5\napp.Gateway._status = hang"
    (tmp_path / "fault.py").write_text(fault)
    (tmp_path / "sitecustomize.py").write_text("import sys\nif 'spawn_main' in str(sys.orig_argv): import fault")
    with process(*options, path=str(tmp_path)) as (url, started):
        before = _started(started.pid, url)
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.removesuffix("v1"), timeout=20)
        assert eventually(lambda: len(before & (now := _workers(started.pid))) == 1 and len(now) == 2, 90)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], "tools": [TOOL]}
        for _ in range(4):
            assert httpx.post(f"{url}/chat/completions", json=body, timeout=30).status_code == 200
        started.send_signal(signal.SIGTERM)
        assert started.wait(120) == 0
        assert started.stderr is not None and "in hang" in started.stderr.read()


@pytest.mark.slow  # waits
def test_requests_have_so_many_seconds_to_end_when_it_is_stopped() -> None:
    async def in_a_second(exchange: Exchange) -> None:
        await asyncio.sleep(1.5)
        await Said()(exchange)

    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "?"}],
        "tools": [TOOL],
        "reasc": {"max_samples": 2},
    }
    for seconds, answered in (("20", True), ("1", False)):
        with serving(in_a_second, get=models) as upstream, ThreadPoolExecutor(1) as threads:
            options = ("--url", upstream.root, "--preset", "generic", "--shutdown", seconds)
            with process(*options, "--no-learning") as (url, started):
                asking = threads.submit(httpx.post, f"{url}/chat/completions", json=body, timeout=30)
                assert eventually(lambda upstream=upstream: bool(upstream.exchanges))
                started.send_signal(signal.SIGTERM)
                assert started.wait(120) == 0
                if answered:
                    assert asking.result().status_code == 200
                else:
                    assert asking.result().json()["error"]["code"] == "stopped"


STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "a vote": ("/chat/completions", {"messages": HELLO, "tools": [TOOL]}),
    "a vote by the Responses API": ("/responses", {"input": "?", "tools": [{"type": "function", **TOOL["function"]}]}),  # type: ignore[dict-item]
    "one response": ("/chat/completions", {"messages": HELLO, "temperature": 0}),
}


@pytest.mark.full
def test_a_stream_that_is_cut_by_a_stop_ends_with_an_error() -> None:
    async def begins(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.token("so")
        await exchange.hang()

    def read(path: str, body: dict[str, Any], url: str) -> str:
        return httpx.post(url + path, json={"model": "tiny", "stream": True, **body}, timeout=60).text

    with serving(begins, get=models) as upstream, ThreadPoolExecutor(3) as threads:
        options = ("--url", upstream.root, "--preset", "generic", "--shutdown", "1", "--no-learning")
        with process(*options) as (url, started):
            reading = {case: threads.submit(read, *given, url) for case, given in STREAMS.items()}
            assert eventually(lambda: _counted(url, "reasc_first_byte_seconds_count") == 3, 30)
            started.send_signal(signal.SIGTERM)
            assert started.wait(120) == 0
            assert started.stderr is not None
            assert started.stderr.read().count(" 200 seconds=") == 3
        for case, streamed in reading.items():
            *_, last = [json.loads(line[6:]) for line in streamed.result().splitlines() if line.startswith("data: {")]
            if case == "a vote by the Responses API":
                assert last["type"] == "response.failed"
                last = last["response"]
            assert "stopped" in last["error"]["message"], case


@pytest.mark.full
@pytest.mark.parametrize("log", ["requests", "errors", "none"])
def test_requests_are_logged_and_so_is_a_store_that_cannot_be_written(
    upstream: Served, tmp_path: Path, log: str
) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "a secret?"}], "tools": [TOOL]}
    folder = tmp_path / "state"
    folder.mkdir()
    options = ("--url", upstream.root, "--preset", "generic", "--state", str(folder / "learned.sqlite"), "--log", log)
    with process(*options, REASC_KEYS="# ours\nsk-mine  # alice") as (url, started):
        folder.rmdir()
        mine = {"authorization": "Bearer sk-mine", "x-request-id": 'of "mine"\t\xe9'.encode("latin-1")}
        asked: Any = {"json": body, "headers": mine, "timeout": 30}
        account = httpx.post(f"{url}/chat/completions?key=sk-mine", **asked).json()["reasc"]
        httpx.post(f"{url}/chat/completions", json={**body, "temperature": 0}, headers=mine, timeout=30)
        httpx.post(f"{url}/chat/completions", json=body, headers={"authorization": "Bearer sk-secret"})
        page = url.removesuffix("v1")
        assert eventually(lambda: "Not kept 1 questions" in text_of(httpx.get(page, auth=("", "sk-mine")).text))
        started.terminate()
        _, said = started.communicate(timeout=120)
    assert "not kept" in said and str(folder) in said
    lines = [line.partition(" ")[2] for line in said.splitlines() if re.match(r"\d{4}-\d\d-\d\dT\S+Z ", line)]
    begin = r"127\.0\.0\.1 alice POST /v1/chat/completions 200 seconds=\d+\.\d+ "
    vote = f"samples={account['samples']} tokens={account['tokens']['spent']} stop={account['stop']} id={account['id']}"
    shown = [
        rf"{begin}{vote} request=",
        rf"{begin}samples=1 tokens=\d+ .*passed=temperature",
        r"127\.0\.0\.1 - POST /v1/chat/completions 401 seconds=\S+ error=invalid_api_key",
    ]
    shown = {"requests": shown, "errors": shown[2:], "none": []}[log]
    assert len(lines) == len(shown) and all(map(re.match, shown, lines)), said
    assert "secret" not in said and "sk-mine" not in said
    assert log != "requests" or r'request="of \"mine\"\t\u00e9"' in lines[0]


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="workers do not work on Windows")
def test_lines_of_several_processes_are_whole(upstream: Served) -> None:
    options = ("--url", upstream.root, "--preset", "generic", "--workers", "2", "--log-format", "json")
    with process(*options) as (url, started), ThreadPoolExecutor(8) as threads:
        _started(started.pid, url)
        ids = [f"{number}-{'x' * 150}" for number in range(80)]  # their lines fit into the pipe, which is read last
        ask = partial(httpx.get, f"{url}/{'y' * 300}", timeout=60)
        for reply in threads.map(lambda id: ask(headers={"x-request-id": id}), ids):
            assert reply.status_code == 404
        started.terminate()
        assert started.stderr is not None
        logged = [json.loads(line) for line in started.stderr.read().splitlines()]
    assert sorted(line["request"] for line in logged) == sorted(ids)
    assert {(line["status"], line["path"]) for line in logged} == {(404, f"/v1/{'y' * 196}")}
