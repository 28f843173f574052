"""Probe a server's capabilities, and remember them in this process."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Literal

from pydantic import SecretStr

from langchain_reasc.exceptions import (
    ConfigurationError,
    LogprobsUnavailable,
    ServerBusy,
    ServerError,
    ServerMismatch,
)
from langchain_reasc.models.payloads import Token, read_tokens
from langchain_reasc.threads import DaemonExecutor, as_they_end
from langchain_reasc_openai.presets import Capabilities
from langchain_reasc_openai.server import Answer, Server, base_url, identify

_MESSAGES: Final = [{"role": "user", "content": "Name some random words."}]
_SEEDED_TOKENS: Final = 12
_STREAMED_TOKENS: Final = 8  # enough to see whether a response begins with reasoning
_COMPARED: Final = 5  # alternatives per token of a stream
_DIFFERENT: Final = (
    1.0  # nats; other requests in the batch change a log-probability by less
)
_K: Final = (20, 10, 5, 3, 1)
_MANY: Final = 100
_WRONG: Final = {"not": "a value of any parameter"}
_SAMPLERS: Final[Mapping[str, tuple[tuple[str, ...], Any]]] = {
    "top_k": (("top_k",), 5),
    "min_p": (("min_p",), 0.1),
    "typical_p": (("typical_p",), 0.9),
    "repetition_penalty": (("repetition_penalty", "repeat_penalty"), 1.1),
    "min_tokens": (("min_tokens",), 1),
    "ignore_eos": (("ignore_eos",), False),
    "bad_words": (("bad_words",), ["zzzz"]),
}
"""Our name -> (names that servers have for it, a value they would accept)."""
_REASONING: Final = ("reasoning_content", "reasoning")
"""Names of the field in which servers put a response's reasoning."""

_Known = tuple[str, str | None]
_Running = tuple[int, str, str | None, SecretStr | None, frozenset[tuple[str, str]]]
_known: dict[_Known, Capabilities] = {}
_running: dict[_Running, Future[Capabilities]] = {}
"""Process, URL, model, key and headers -> the probe that runs now."""
_guard = threading.Lock()


def probe(
    url: str,
    *,
    model: str | None = None,
    api_key: SecretStr | None = None,
    refresh: bool = False,
    headers: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    proxy: str | None = None,
) -> Capabilities:
    """Find out a server's capabilities by asking it, once per process.

    This takes about 15 requests of one to a few tokens each, and well under a second if
    the model is loaded.

    Args:
        url: the server's base URL; ``/v1`` is added if it has no path.
        model: the name of the model; None if the server has only one.
        api_key: sent as a bearer token, and stored nowhere.
        refresh: whether to ask again if the answer is known.
        headers: further HTTP headers.
        timeout: seconds to wait for one answer; the first may have to wait until the
            model is loaded.
        proxy: the URL of a proxy to ask through.

    Raises:
        ServerError: the server cannot be reached, refuses the key, or gives no
            response.
        ConfigurationError: the URL or the model is wrong.
    """
    if not refresh and (capabilities := known(url, model)):
        return capabilities
    options: dict[str, Any] = {
        "api_key": api_key,
        "headers": headers,
        "timeout": timeout,
        "proxy": proxy,
    }
    started = start_probe(url, model, **options)
    next(as_they_end([started]))
    return started.result()


def start_probe(
    url: str,
    model: str | None,
    *,
    api_key: SecretStr | None,
    headers: Mapping[str, str] | None,
    timeout: float,
    proxy: str | None,
) -> Future[Capabilities]:
    """Start a probe in a thread, with the arguments of :func:`probe`, or return the
    same probe if it is running.

    Callers share the outcome, failed or not, and can stop waiting for it: the probe
    goes on, for later callers.
    """
    url = base_url(url)

    def run() -> Capabilities:
        with Server(
            url, api_key=api_key, headers=headers, timeout=timeout, proxy=proxy
        ) as server:
            capabilities = _known[url, model] = _Probe(server, model).ask_all()
        return capabilities

    key: _Running = (
        os.getpid(),
        url,
        model,
        api_key,
        frozenset((headers or {}).items()),
    )
    with _guard:
        if (running := _running.get(key)) is not None:
            return running
        started = _running[key] = DaemonExecutor(1, "reasc-probe").submit(run)

    def forget(_: object) -> None:
        with _guard:
            del _running[key]

    started.add_done_callback(forget)
    return started


def known(url: str, model: str | None) -> Capabilities | None:
    """Return the capabilities of a server that this process has probed, else None."""
    return _known.get((base_url(url), model))


class _Probe:
    """Asks one server about one of its models. Each question fills some fields of
    :class:`Capabilities`.
    """

    def __init__(self, server: Server, model: str | None) -> None:
        """Ask the server for its software and models.

        Raises:
            ServerError: the server cannot be reached, or refuses the key.
            ConfigurationError: no model is named, and the server has none or several.
        """
        self.server = server
        self.identity = identify(server)
        listed = self.identity.models
        if model is None and not listed:
            raise ConfigurationError(
                f"{server.url} lists no models; name the model, or give the address of "
                "the API, which mostly ends in /v1"
            )
        if model is None and len(listed) > 1:
            raise ConfigurationError(
                f"the server has {len(listed)} models; name one of "
                f"{', '.join(listed[:20])}"
            )
        self.model = listed[0] if model is None else model
        self.limit: Literal["max_tokens", "max_completion_tokens"] = (
            self.identity.preset.capabilities.max_tokens
        )
        self.notices: list[str] = []

    def ask_all(self) -> Capabilities:
        """Ask for all capabilities.

        Raises:
            ServerError: the server cannot be reached, refuses the key, gives no
                response at all, or has no model of that name (:class:`ServerMismatch`).
        """
        self._require_response()
        logprobs, k = self._logprobs()
        streams = self._streams(logprobs, k or 0)
        return Capabilities(
            server=self.identity.preset.name,
            version=self.identity.version,
            models=self.identity.models,
            n=self._n(),
            logprobs=logprobs,
            top_logprobs=k,
            **streams,
            seed=self._seed(),
            samplers=self._samplers(),
            max_tokens=self.limit,
            learned="probe",
            notices=tuple(self.notices),
        )

    def _body(self, tokens: int = 1, **more: Any) -> dict[str, Any]:
        return {"model": self.model, "messages": _MESSAGES, self.limit: tokens, **more}

    def _chat(self, **more: Any) -> Answer:
        return self.server.chat(self._body(**more))

    def _stream(self, **more: Any) -> Answer | list[dict[str, Any]]:
        with self.server.stream(self._body(_STREAMED_TOKENS, **more)) as events:
            return (
                events
                if isinstance(events, Answer)
                else list(islice(events, 4 * _STREAMED_TOKENS))
            )

    def _require_response(self) -> None:
        """Require a response, under either name of the token limit."""
        answer = self._chat()
        if answer.status == 400 and "max_" in answer.message:
            self.limit = (
                "max_completion_tokens" if self.limit == "max_tokens" else "max_tokens"
            )
            answer = self._chat()
        listed = self.identity.models
        if answer.status == 404 and listed and self.model not in listed:
            raise ServerMismatch(
                f"{self.server.url} has no model {self.model!r}; it lists "
                f"{', '.join(map(repr, listed[:20]))}"
            )
        if not (answer.ok and answer.choices):
            kind = ServerBusy if answer.status >= 500 else ServerError
            raise kind(f"{self.server.url} gives no chat completion ({answer.message})")

    def _logprobs(self) -> tuple[bool, int | None]:
        """Whether there are logprobs, and the most alternatives that came with a token."""
        for asked in _K:
            answer = self._chat(logprobs=True, top_logprobs=asked)
            if not answer.refused:
                break
        else:
            refusal, asked = answer.message, 0
            answer = self._chat(logprobs=True)
            if answer.refused:
                self.notices.append(
                    f"logprobs are refused ({refusal}): votes are counted"
                )
                return False, None
        tokens, k = _count_logprobs(answer.choices)
        if not tokens:
            self.notices.append(
                "logprobs are asked for and none come back: votes are counted"
            )
            return False, None
        if not k:
            self.notices.append(
                "only the chosen token's logprob comes back: use the token_logprob "
                "signal"
            )
        k = min(k, asked)  # some return the chosen token beside the k likeliest
        if k == _K[0] and (answer := self._chat(logprobs=True, top_logprobs=_MANY)).ok:
            k = max(k, min(_count_logprobs(answer.choices)[1], _MANY))
        return True, k

    def _n(self) -> bool:
        answer = self._chat(n=2)
        if len(answer.choices) == 2:
            return True
        why = answer.message if answer.refused else f"{len(answer.choices)} came back"
        self.notices.append(
            f"n=2 gives no two responses ({why}): each sample is a request of its own"
        )
        return False

    def _streams(self, logprobs: bool, k: int) -> dict[str, bool | None]:
        asked = (
            {"logprobs": True, **({"top_logprobs": min(k, _COMPARED)} if k else {})}
            if logprobs
            else {}
        )
        usage = {"stream_options": {"include_usage": True}}
        for more in ({**usage, "temperature": 0}, usage, {}):
            if not isinstance(events := self._stream(**more, **asked), Answer):
                break
            refusal = events.message
        else:
            self.notices.append(f"no streams ({refusal}): a sample cannot be cut off")
            return {"streamed_logprobs": False, "streamed_usage": False}
        found: dict[str, bool | None] = {
            "streamed_logprobs": any(
                _count_logprobs(event.get("choices"))[0] for event in events
            ),
            "streamed_usage": any(
                isinstance(event.get("usage"), dict) for event in events
            ),
            "reasoning_logprobs": _reasoning_has_logprobs(events) if logprobs else None,
        }
        self.notices += _missing_in_streams(**found, logprobs=logprobs)
        if found["streamed_logprobs"]:
            whole = self.server.chat(
                self._body(_STREAMED_TOKENS, temperature=0, **asked)
            )
            if _differ(events, whole.choices):
                self.notices.append(
                    "logprobs in streams differ from those of the same response, not "
                    "streamed"
                )
        return found

    def _seed(self) -> bool | None:
        """Whether a seed determines a response: the same twice, and another one with
        another seed.
        """
        answers = [
            self._chat(tokens=_SEEDED_TOKENS, seed=seed, temperature=1.0)
            for seed in (1, 1, 2, 3)
        ]
        if not all(answer.ok and answer.choices for answer in answers):
            return False
        first, again, *others = [
            str(answer.choices[0].get("message")) for answer in answers
        ]
        if first != again:
            self.notices.append("the same seed gives different responses")
            return False
        if all(other == first for other in others):
            self.notices.append(
                "responses with different seeds are equal: whether seeds count cannot "
                "be told"
            )
            return None
        return True

    def _samplers(self) -> dict[str, str]:
        """Which parameters the server reads: found by wrong values, or right ones where
        it is strict.

        Lenient servers ignore unknown fields; strict ones refuse them.
        """
        strict = self._chat(no_such_field=_WRONG).refused

        def accepts(name: str, right: Any) -> bool:
            answer = self._chat(**{name: right if strict else _WRONG})
            return answer.ok if strict else answer.refused

        found = {
            ours: next((name for name in theirs if accepts(name, right)), None)
            for ours, (theirs, right) in _SAMPLERS.items()
        }
        return {ours: name for ours, name in found.items() if name is not None}


def _missing_in_streams(
    *,
    logprobs: bool,
    streamed_logprobs: bool | None,
    streamed_usage: bool | None,
    reasoning_logprobs: bool | None,
) -> Iterator[str]:
    if logprobs and not streamed_logprobs:
        when = "" if reasoning_logprobs is None else " while the model reasons"
        yield f"streams carry no logprobs{when}: responses are taken whole, and cannot be cut off"
    elif reasoning_logprobs is False:
        yield "streams carry no logprobs of the reasoning: confidence is that of the answer alone"
    if not streamed_usage:
        yield "streams carry no token counts: tokens are estimated from the chunks"


def _differ(events: Sequence[Mapping[str, Any]], whole: Any) -> bool:
    """Whether a stream has other log-probabilities than a ``whole`` response to the
    same prompt.

    Both are drawn at temperature 0, and compared up to the first token in which they
    differ.
    """
    with suppress(LogprobsUnavailable):
        streamed = [
            token for event in events for token in _tokens(event.get("choices"))
        ]
        for one, other in zip(streamed, _tokens(whole), strict=False):
            if one.spelled is None or one.spelled != other.spelled:
                return False
            pairs: list[tuple[Any, Any]] = [(one.logprob, other.logprob)]
            pairs += zip(one.alternatives, other.alternatives, strict=False)
            if any(
                _is_number(b) and not (_is_number(a) and abs(a - b) <= _DIFFERENT)
                for a, b in pairs[:3]
            ):
                return True
    return False


def _tokens(choices: Any) -> Sequence[Token]:
    return read_tokens({"logprobs": _first(choices).get("logprobs")})


def _reasoning_has_logprobs(events: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether the reasoning at the start of a stream has logprobs; None if the stream
    shows no reasoning.
    """
    reasoned = tokens = 0
    for event in events:
        choice = _first(event.get("choices"))
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        if delta.get("content"):
            break  # the answer
        reasoned += any(delta.get(name) for name in _REASONING)
        tokens += _count_logprobs([choice])[0]
    # a token or two may be the marks around it
    return 2 * tokens >= reasoned if reasoned else None


def _count_logprobs(choices: Any) -> tuple[int, int]:
    """Return (tokens with a logprob, most alternatives of one) in the first choice, in
    either of OpenAI's forms.
    """
    logprobs = _first(choices).get("logprobs")
    if not isinstance(logprobs, dict):
        return 0, 0
    if isinstance(logprobs.get("content"), list):
        rows = [
            row
            for row in logprobs["content"]
            if isinstance(row, dict) and _is_number(row.get("logprob"))
        ]
        count, alternatives = len(rows), [row.get("top_logprobs") for row in rows]
    else:
        chosen, alternatives = (
            given if isinstance(given, list) else []
            for given in (logprobs.get("token_logprobs"), logprobs.get("top_logprobs"))
        )
        count = sum(map(_is_number, chosen))
    most = max(
        (len(given) for given in alternatives if isinstance(given, list | dict)),
        default=0,
    )
    return count, most if count else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _first(choices: Any) -> dict[str, Any]:
    return (
        choices[0]
        if isinstance(choices, list) and choices and isinstance(choices[0], dict)
        else {}
    )
