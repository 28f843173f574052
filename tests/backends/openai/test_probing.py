"""What a server supports is found out by asking it, once; what a preset promises; and `reasc probe`."""

import asyncio
import json
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import ModelTimeoutError
from langchain_reasc_openai import PRESETS, Capabilities, ChatOpenAICompatible, RetryPolicy, probe
from properties import examples
from pydantic import SecretStr
from servers import fake_server
from servers.exchange import Answer, Exchange
from typer.testing import CliRunner, Result

from backends.openai.conftest import model_of
from backends.openai.fake_server import Fake, llama_server, lm_studio, ollama, serving, sglang, vllm
from backends.openai.loopback import Face, eventually, silent
from langchain_reasc import ReASCRunnable
from langchain_reasc.cli import app, console
from langchain_reasc.exceptions import ConfigurationError, SampleTimeout, ServerError, ServerTimeout
from langchain_reasc.models import prepare_model

pytestmark = pytest.mark.full

KEY = "hush-hush"


def found(fake: Fake, **options: Any) -> Capabilities:
    with serving(fake):
        return probe(fake.url, **options)


def test_a_complete_server(fake: Fake) -> None:
    caps = probe(fake.url)
    assert caps.model_dump() == {
        "server": "vllm",
        "version": "0.11.0",
        "models": ("tiny",),
        "n": True,
        "logprobs": True,
        "top_logprobs": 20,
        "streamed_logprobs": True,
        "streamed_usage": True,
        "reasoning_logprobs": None,
        "seed": True,
        "samplers": {name: name for name in ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos")},
        "max_tokens": "max_completion_tokens",
        "learned": "probe",
        "notices": (),
    }
    limits = [request.get("max_tokens") or request.get("max_completion_tokens") for request in fake.requests]
    assert len(limits) <= 20 and sum(limits) <= 80, "it costs few tokens"


@pytest.mark.parametrize(
    ("fake", "fields", "notice"),
    [
        (vllm(k=7), {"top_logprobs": 5}, ""),
        (vllm(k=50, refuses_k=False), {"top_logprobs": 50}, ""),
        (vllm(k=3, refuses_k=False), {"top_logprobs": 3}, ""),  # it clips what it returns
        (vllm(extra=1, k=5), {"top_logprobs": 5}, ""),  # the chosen token beside the k likeliest is not counted
        (vllm(k=0, refuses_k=False), {"logprobs": True, "top_logprobs": 0}, "token_logprob signal"),
        (vllm(k=None), {"logprobs": False, "top_logprobs": None}, "none come back"),
        (vllm(k=-1), {"logprobs": False, "top_logprobs": None}, "logprobs are refused"),
        (vllm(legacy=True), {"logprobs": True, "top_logprobs": 20}, ""),
        (vllm(n=False), {"n": False}, "n=2"),
        (vllm(streams=False), {"streamed_usage": False, "streamed_logprobs": False}, "no streams"),
        (vllm(streams_logprobs=False), {"streamed_logprobs": False}, "streams carry no logprobs"),
        (vllm(streams_usage=False), {"streamed_usage": False}, "no token counts"),
        (vllm(seed="ignored"), {"seed": False}, "same seed"),
        (vllm(seed="none"), {"seed": None}, "different seeds"),
        (vllm(strict=True, takes=("top_k",)), {"samplers": {"top_k": "top_k"}}, ""),
        (vllm(strict=True, limit="max_completion_tokens"), {"max_tokens": "max_completion_tokens"}, ""),
        (ollama(strict=True), {"max_tokens": "max_tokens", "samplers": {}}, ""),
        (Fake(owner="somebody", native={}), {"server": "generic"}, ""),
    ],
)
def test_what_a_server_has_is_found_and_what_is_missing_is_said(
    fake: Fake, fields: dict[str, Any], notice: str
) -> None:
    caps = found(fake)
    assert caps.model_dump(include=set(fields)) == fields
    assert not notice or any(notice in said for said in caps.notices), caps.notices


class Several(Fake):
    """A server whose stream says two tokens at a time, as under speculative decoding."""

    def events(self, request: dict[str, Any], at: int = 0) -> Any:
        [words] = self.said(request, at)
        for place in range(0, len(words), 2):
            delta = {"role": "assistant", "content": "".join(words[place : place + 2])}
            told = self.of_chunk(words[place : place + 2], request, place)
            yield self.chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None, "logprobs": told}])
        yield self.last(0, [words])
        yield self.chunk(choices=[], usage=self.usage([words]))

    def of_chunk(self, words: Any, request: dict[str, Any], place: int) -> Any:
        return self.logprobs(words, request, place)

    def ranked(self, word: str, place: int, k: int) -> list[tuple[str, float]]:
        """The token is likeliest, and the less likely the later it comes."""
        ranked = [(word, -0.1 - place / 8), *((f"w{at}", -3.0 - at) for at in range(k - 1))]
        return [ranked[0], *ranked]


class Flat(Several):
    """Its stream says another log-probability of each token than a whole response does."""

    def of_chunk(self, words: Any, request: dict[str, Any], place: int) -> Any:
        return self.logprobs(words, request, place + 16)


class Missing(Several):
    """Its stream has no number where a log-probability should be."""

    def of_chunk(self, words: Any, request: dict[str, Any], place: int) -> Any:
        told = super().of_chunk(words, request, place)
        for token in told["content"] if told else ():
            token["logprob"] = None if place else token["logprob"]
        return told


@pytest.mark.parametrize(("fake", "differ"), [(Several(), False), (Flat(), True), (Missing(), True)])
def test_logprobs_in_streams_that_differ_from_those_of_a_whole_response_are_said(fake: Fake, differ: bool) -> None:
    caps = found(fake)
    assert caps.streamed_logprobs and caps.streamed_usage
    said = "logprobs in streams differ from those of the same response, not streamed"
    assert caps.notices == ((said,) if differ else ())


@dataclass
class Thinking(Fake):
    """A server whose reasoning parser takes the first words out of the content, and may lose the logprobs of some."""

    answers_after: int = 0
    loses_logprobs: int = 0
    key_of_reasoning: str = "reasoning_content"

    def events(self, request: dict[str, Any], at: int = 0) -> Any:
        for place, event in enumerate(super().events(request, at)):
            choice = event["choices"][0] if event["choices"] else {}
            if place < self.answers_after and choice.get("delta"):
                choice["delta"] = {self.key_of_reasoning: choice["delta"]["content"]}
                choice["logprobs"] = None if place < self.loses_logprobs else choice["logprobs"]
            yield event


@pytest.mark.parametrize(
    ("answers_after", "loses_logprobs", "reasoning", "streamed", "notice"),
    [
        (3, 1, True, True, None),  # of a mark that is not shown
        (2, 2, False, True, "of the reasoning"),
        (9, 9, False, False, "taken whole"),
        (0, 9, None, True, None),
    ],
)
def test_whether_logprobs_survive_a_reasoning_parser(
    answers_after: int, loses_logprobs: int, reasoning: bool | None, streamed: bool, notice: str | None
) -> None:
    key = "reasoning" if answers_after == 3 else "reasoning_content"
    caps = found(Thinking(answers_after=answers_after, loses_logprobs=loses_logprobs, key_of_reasoning=key))
    assert (caps.reasoning_logprobs, caps.streamed_logprobs) == (reasoning, streamed)
    assert [notice in said for said in caps.notices] == [True] if notice else not caps.notices


async def dripping(exchange: Exchange) -> None:
    """An answer that never ends, with no long silence in it."""
    await exchange.begin_stream("application/json")
    while True:
        await exchange.write(" ")
        await asyncio.sleep(0.05)


async def pinging(exchange: Exchange) -> None:
    """Answer GETs, and send comments without an end to all else."""
    if not exchange.body:
        return await exchange.reply(200, {"data": [{"id": "tiny"}]})
    if not exchange.body.get("stream"):
        return await Fake()(exchange)
    await exchange.begin_stream()
    while True:
        await exchange.write(": ping\n\n")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "seconds", "why"),
    [
        (silent, 0.3, "within 0.3 s"),
        (dripping, 0.3, "within 0.3 s"),
        (pinging, 0.3, "within 0.3 s"),
        (lambda exchange: exchange.reply(200, " " * 10_000_001), 60, "more than 10,000,000"),
    ],
)
def test_a_probe_reads_no_answer_that_takes_too_long_or_is_too_large(answer: Answer, seconds: float, why: str) -> None:
    begun = time.monotonic()
    with fake_server.serving(answer, get=answer) as served, pytest.raises(ServerError, match=why):
        probe(served.url, timeout=seconds)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("limit", ["timeout", "sample_timeout"])
def test_a_question_waits_for_no_probe_longer_than_it_may(face: Face, limit: str) -> None:
    begun = time.monotonic()
    with fake_server.serving(silent, get=silent) as served:
        model = ChatOpenAICompatible(base_url=served.url, model="m")
        with pytest.raises(SampleTimeout):
            face.solve(ReASCRunnable(model=model, **{limit: 0.3}), "q")
    assert time.monotonic() - begun < 10


CALLS: dict[str, Any] = {
    "invoke": lambda face, model: face.invoke(model, "q"),
    "stream": lambda face, model: face.stream(model, "q"),
    "sample": lambda face, model: face.sample(model, "q", n=2),
    "capabilities": lambda face, model: face.capabilities(model),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("limit", ["timeout", "stream_chunk_timeout"])
@pytest.mark.parametrize("probed", [silent, dripping])
def test_requests_to_a_server_that_never_answers_all_fail_within_their_own_time(
    face: Face, limit: str, call: str, probed: Answer
) -> None:
    def seconds() -> float:
        begun = time.monotonic()
        with pytest.raises(ServerTimeout, match="within 1 s") as raised:
            CALLS[call](face, model)
        assert isinstance(raised.value, ModelTimeoutError) and raised.value.is_retryable
        return time.monotonic() - begun

    with fake_server.serving(probed, get=probed) as served, ThreadPoolExecutor(4) as threads:
        model = ChatOpenAICompatible(base_url=served.url, model="m", **{limit: 1.0})
        waits = [future.result() for future in [threads.submit(seconds) for _ in range(4)]]
    assert max(waits) < 1.9, "and not one after the other"


def test_a_probe_that_outlasts_a_request_serves_the_next(face: Face) -> None:
    fake = vllm()

    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.15)  # 15 answers take longer than a request may
        await fake(exchange)

    with fake_server.serving(slow, get=fake.get) as fake.served:
        model = model_of(fake, preset="auto", timeout=1.0)
        with pytest.raises(ServerTimeout):
            face.invoke(model, "q")
        assert eventually(lambda: model._connection.known(model) is not None)
        assert face.invoke(model, "q").content == "So it is \\boxed{4}"


def test_a_server_that_never_answers_does_not_hide_the_next(face: Face, fake: Fake) -> None:
    with fake_server.serving(silent, get=silent) as served:
        model = model_of(fake, base_url=[served.url, fake.url], preset="auto", timeout=2.0)
        assert face.capabilities(model).server == "vllm"


def test_a_server_is_asked_once_per_process(fake: Fake) -> None:
    with ThreadPoolExecutor(8) as threads:
        first, *others = threads.map(probe, [fake.url] * 8)
    assert all(other is first for other in others)
    asked = len(fake.requests)
    assert len([request for request in fake.requests if request.get("n") == 2]) == 1
    assert probe(fake.url, refresh=True) is not first and len(fake.requests) == 2 * asked


@pytest.mark.parametrize(
    ("fake", "options", "error", "says"),
    [
        (vllm(models=("small", "large")), {}, ConfigurationError, "small, large"),
        (vllm(models=()), {}, ConfigurationError, "no models"),
        (vllm(), {"model": "big"}, ConfigurationError, "'big'.*'tiny'"),
        (vllm(key=KEY), {}, ServerError, "asks for a key"),
        (vllm(key=KEY), {"api_key": SecretStr("wrong-hush")}, ServerError, "refuses the key"),
        (vllm(status=500), {}, ServerError, "HTTP 500: out of order"),
    ],
)
def test_what_cannot_be_asked_is_an_error(fake: Fake, options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as raised:
        found(fake, **options)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(("status", "after"), [(429, 0), (503, 1), (503, 5), (429, 8), (500, 0)])
def test_a_server_that_becomes_busy_is_asked_another_time(status: int, after: int) -> None:
    fake = vllm()
    fake.turns_busy = (after, status)
    with serving(fake):
        with pytest.raises(ServerError, match=f"is busy|HTTP {status}"):
            probe(fake.url)
        fake.turns_busy = None
        assert len(probe(fake.url).samplers) == 5


KEYS = ["choices", "message", "logprobs", "content", "logprob", "top_logprobs", "token_logprobs", "usage", "data", "id"]
KEYS += ["owned_by", "version", "error", "delta", "compatibility_type", "detail"]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "vllm", "tiny", "max_tokens"])
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner), max_leaves=5
)
row = st.fixed_dictionaries({"logprob": leaves, "top_logprobs": anything})
payload = anything | st.fixed_dictionaries({"content": st.lists(row | leaves, max_size=2) | anything})
payload |= st.fixed_dictionaries({"token_logprobs": anything, "top_logprobs": anything})
choice = st.fixed_dictionaries({"message": leaves, "logprobs": payload})
bodies = anything | st.fixed_dictionaries({"choices": st.lists(choice | leaves, min_size=1, max_size=2)})
answers = st.tuples(st.sampled_from([200, 200, 200, 400, 404, 422, 429, 500, 503]), bodies)
streams = answers | st.lists(st.dictionaries(st.sampled_from(KEYS), anything), max_size=3)
GOOD = (200, {"choices": [{"message": {"content": "So"}}]})


@dataclass
class Nonsense:
    """A server that says anything at all, after a first right answer if it is kind."""

    answers: Iterator[Any]
    streams: Iterator[Any]
    kind: bool

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.body.get("stream"):
            answer = next(self.streams)
        else:
            answer = GOOD if self.kind else next(self.answers)
            self.kind = False
        if isinstance(answer, tuple):
            await exchange.reply(*answer)
        else:
            await exchange.stream(answer)

    async def get(self, exchange: Exchange) -> None:
        await exchange.reply(*next(self.answers))


@pytest.fixture(scope="module")
def nonsense() -> Iterator[tuple[str, Nonsense]]:
    server = Nonsense(iter(()), iter(()), kind=True)
    with fake_server.serving(server, get=server.get) as served:
        yield served.url, server


@examples(30)
@given(
    said=st.lists(answers, min_size=3, max_size=9),
    streamed=st.lists(streams, min_size=1, max_size=2),
    kind=st.booleans(),
)
def test_nonsense_is_survived(nonsense: tuple[str, Nonsense], said: Any, streamed: Any, kind: bool) -> None:
    url, server = nonsense
    server.answers, server.streams, server.kind = cycle(said), cycle(streamed), kind
    try:
        found = probe(url, model="tiny", refresh=True)
    except (ServerError, ConfigurationError) as error:
        assert str(error)
        return
    assert found.learned == "probe"
    assert found.logprobs or found.top_logprobs is None
    assert found.top_logprobs is None or 0 <= found.top_logprobs <= 100


KINDS = {"vllm": vllm, "sglang": sglang, "llama-server": llama_server, "ollama": ollama, "lm-studio": lm_studio}


@pytest.mark.parametrize("name", PRESETS)
def test_a_server_is_recognised_and_has_what_its_preset_promises(name: str) -> None:
    preset = PRESETS[name]
    promised = preset.capabilities
    assert preset.title and promised.server == name
    assert (preset.default_url is None) == (name == "generic")
    if preset.default_url:
        assert ChatOpenAICompatible(model="tiny", preset=name, api_key="k").base_urls == (preset.default_url,)
    if name in KINDS:
        caps = found(KINDS[name]())
        for field in ("server", "n", "logprobs", "top_logprobs", "streamed_usage", "streamed_logprobs"):
            assert getattr(caps, field) == getattr(promised, field), field
        assert {ours: promised.samplers.get(ours) for ours in caps.samplers} == caps.samplers


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (" http://localhost:8000/ ", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("https://host/llm/api", "https://host/llm/api"),
    ],
)
def test_addresses_are_brought_into_one_form(given: str, url: str) -> None:
    assert ChatOpenAICompatible(model="m", preset="vllm", base_url=[given, given]).base_urls == (url,)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("localhost:8000", "got 'localhost:8000'"),
        ("http://", "looks like"),
        ("http://me:hush-hush@host/v1", "user name"),
        ("http://host/v1?key=hush-hush", "ends in a query"),
        ("me:hush-hush@host", "looks like"),
        ("http://me:hush-hush@host:port/v1", "looks like"),
        *((f"http://{host}/v1", "looks like") for host in ("host:99999", "host:x", "host:-1", "[::1", "::1]", "[x]")),
        *(
            (f"http://host/v1{path}{end}", "'http://host/v1'")
            for path in ("/chat/completions", "/completions", "/responses")
            for end in ("", "/")
        ),
    ],
)
def test_a_wrong_address_is_refused_without_showing_secrets(given: str, complaint: str) -> None:
    for ask in (lambda: probe(given), lambda: ChatOpenAICompatible(model="m", base_url=given)):
        with pytest.raises(ConfigurationError, match=complaint) as raised:
            ask()
        assert "hush" not in str(raised.value)


def test_auto_asks_once_for_all_copies_and_calls(fake: Fake, face: Face) -> None:
    model = model_of(fake, preset="auto")
    face.invoke(model, "Hi")
    probed = len(fake.requests)
    face.invoke(model.model_copy(update={"temperature": 0.5}), "Hi")
    face.invoke(model_of(fake, preset="auto"), "Hi")
    face.sample(model, "Hi", n=2)
    assert len(fake.requests) == probed + 4 and model.capabilities().server == "vllm"


def test_auto_passes_over_a_server_that_is_not_there(face: Face, gone: Fake, fake: Fake) -> None:
    model = model_of(fake, preset="auto", base_url=[gone.url, fake.url])
    assert face.invoke(model, "Hi").content == "So it is \\boxed{4}"


def test_no_server_at_all_is_one_clear_line(face: Face, gone: Fake) -> None:
    for call, options in ((face.invoke, {}), (face.stream, {}), (face.sample, {"n": 2})):
        with pytest.raises(ServerError, match=rf"no server at {gone.url}") as raised:
            call(model_of(gone, preset="auto", api_key=KEY), "Hi", **options)
        assert KEY not in "".join(traceback.format_exception(raised.value)) + str(vars(raised.value))


def test_a_busy_server_is_tried_again_and_asked_later_what_it_supports(face: Face) -> None:
    with serving(vllm(status=503)) as fake:
        model = model_of(fake, preset="auto", retry=RetryPolicy(attempts=1000, first_wait=0.05, longest_wait=0.05))
        threading.Timer(0.2, lambda: setattr(fake, "status", 200)).start()
        assert face.invoke(model, "Hi").content == "So it is \\boxed{4}"
        assert model.capabilities().learned == "probe"


@pytest.mark.parametrize(("k", "asked_for"), [(5, 5), (50, 20)])
def test_reasc_asks_for_as_many_alternatives_as_the_server_is_known_to_grant(k: int, asked_for: int) -> None:
    with serving(vllm(k=k, refuses_k=k < 20)) as fake:
        model = model_of(fake, preset="auto")
        model.capabilities()
        assert prepare_model(model, logprobs=True).model.top_logprobs == asked_for  # type: ignore[attr-defined]


def test_reasc_says_why_there_is_no_confidence_before_anything_is_paid_for() -> None:
    with serving(lm_studio()) as fake:
        reason = prepare_model(model_of(fake, preset="lm-studio"), logprobs=True).no_logprobs
    assert reason is not None and "log-probabilities" in reason


SMALL = {"n_params": 1_000, "size": 2_000, "n_vocab": 97, "n_embd": 16}
LARGE = {"n_params": 7_000, "size": 9_000, "n_vocab": 97, "n_embd": 64}


def several(*fakes: Fake, **fields: Any) -> ChatOpenAICompatible:
    return ChatOpenAICompatible(base_url=[fake.url for fake in fakes], model="tiny", **fields)


@pytest.mark.parametrize(
    ("one", "other", "complaint"),
    [
        (
            llama_server(meta=SMALL),
            llama_server(meta=LARGE),
            r"{one}: n_params 1000, size 2000.*{other}: n_params 7000",
        ),
        (llama_server(meta=SMALL), llama_server(meta=SMALL, models=("m.gguf", "tiny")), ""),  # the name does not matter
        (sglang(), sglang(models=("huge", "vast")), "{other} .*huge, vast .*'tiny'"),
        (ollama(), ollama(models=("tiny:latest", "tiny")), ""),  # they say nothing of their weights
    ],
)
def test_servers_of_other_models_are_refused_with_both_sides_named(
    face: Face, one: Fake, other: Fake, complaint: str
) -> None:
    with serving(one), serving(other), several(one, other) as model:
        if complaint:
            with pytest.raises(ConfigurationError, match=complaint.format(one=one.url, other=other.url)):
                face.sample(model, "Hi", n=2)
        else:
            assert len(face.sample(model, "Hi", n=2)) == 2


def test_servers_are_asked_what_they_serve_once_and_not_where_the_preset_is_named(face: Face) -> None:
    with serving(vllm()) as one, serving(vllm()) as two:
        with several(one, two) as model:
            face.invoke(model, "Hi")
            asked = len(two.gets)
            face.invoke(model.model_copy(update={"temperature": 0.5}), "Hi")
            assert len(two.gets) == asked > 0
        with several(one, two, preset="vllm") as named:
            face.invoke(named, "Hi")
            assert len(two.gets) == asked


def command(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["probe", *map(str, arguments)], prog_name="reasc")
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)  # no traceback
    return result


def test_it_shows_what_a_server_supports_or_prints_it_as_data() -> None:
    with serving(llama_server()) as fake:
        lines = command(fake.url).stdout.splitlines()
        data = json.loads(command(fake.url, "--json").stdout)
    shown = {line[:23].strip(): line[23:].strip() for line in lines}
    assert shown["server"].strip() == "llama-server b6900-abc"
    assert shown["logprobs"] == "yes, up to 100 alternatives"
    assert "repetition_penalty (as repeat_penalty)" in shown["sampling parameters"]
    assert (data["server"], data["top_logprobs"], data["learned"]) == ("llama-server", 100, "probe")


def test_a_long_name_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "/models/" + "a-model-with-a-very-long-name/" * 5
    monkeypatch.setattr(console, "_WIDTH", 60)
    with serving(vllm(models=(name,))) as fake:
        lines = command(fake.url).stdout.splitlines()
    assert name in "".join(line[23:].strip() for line in lines) and max(map(len, lines)) <= 60


def test_servers_are_compared_and_one_that_is_down_is_named(fake: Fake, gone: Fake) -> None:
    assert "reasc probe http://localhost:8080" in command("--help").stdout
    result = command(fake.url, gone.url, code=1)
    assert "vllm 0.11.0" in result.stdout
    assert result.stderr.startswith(f"error: no server at {gone.url}")
    alone = command(gone.url, code=1).stderr
    assert alone.startswith(f"error: no server at {gone.url} ") and alone.count("\n") == 1
    assert "is it running?" in alone


def test_the_key_comes_from_the_environment_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(vllm(key=KEY)) as fake:
        assert "asks for a key" in " ".join(command(fake.url, code=1).stderr.split())
        shown = command(fake.url, "--key-variable", "MY_KEY", "--json")
    assert "hush" not in shown.output
    assert "OTHER_KEY is not set" in command(fake.url, "--key-variable", "OTHER_KEY", code=1).stderr


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("langchain_reasc_openai", "langchain_openai")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "langchain_openai", None)  # an import of it fails
    assert 'pip install "langchain-reasc[openai]"' in command("http://localhost:1", code=1).stderr.replace("\n", " ")
