"""Finds out by asking what a server supports.

About 15 requests of one to a few tokens each, which the server answers in well under a second once its model is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Literal

from langchain_reasc.exceptions import ConfigurationError, ServerBusy, ServerError
from langchain_reasc_openai.probing.asking import Answer, Server
from langchain_reasc_openai.probing.capabilities import Capabilities
from langchain_reasc_openai.probing.closed_streams import stops_when_cut_off
from langchain_reasc_openai.probing.identity import Identity, identify
from langchain_reasc_openai.probing.logprobs_seen import counted_logprobs, reasoning_logprobs

__all__ = ["ask_everything"]

_MESSAGES: Final = [{"role": "user", "content": "Name some random words."}]
_SEEDED_TOKENS: Final = 12
_STREAMED_TOKENS: Final = 8  # as many as show whether a response begins with reasoning
_K: Final = (20, 10, 5, 3, 1)
_MANY: Final = 100
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


def ask_everything(server: Server, model: str | None = None, *, cut_off: bool = False) -> Capabilities:
    """Ask a server for all that :class:`Capabilities` holds of a model, or of the only one that it lists.

    With ``cut_off`` it is measured, too, if a stream that is closed stops it.

    Raises:
        ServerError: it cannot be reached, refuses the key, or gives no response at all.
        ConfigurationError: it has several models and none was named, or no model of that name.
    """
    identity = identify(server)
    return _Questions(server, identity, _model(server.url, identity, model)).capabilities(cut_off=cut_off)


def _model(url: str, identity: Identity, model: str | None) -> str:
    listed = identity.models
    if model is not None:
        return model
    if len(listed) == 1:
        return listed[0]
    if not listed:
        raise ConfigurationError(
            f"{url} lists no models; name the model, or give the address of the API, which mostly ends in /v1"
        )
    raise ConfigurationError(f"the server has {len(listed)} models; name one of {', '.join(listed[:20])}")


@dataclass
class _Questions:
    server: Server
    identity: Identity
    model: str
    notices: list[str] = field(default_factory=list)
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"

    def capabilities(self, *, cut_off: bool) -> Capabilities:
        self._plain()
        logprobs, k = self._logprobs()
        streamed = self._stream(logprobs)
        samplers = self._samplers()
        return Capabilities(
            server=self.identity.preset.name,
            version=self.identity.version,
            models=self.identity.models,
            n=self._n(),
            logprobs=logprobs,
            top_logprobs=k,
            **streamed,
            stops_when_cut_off=self._stops(samplers) if cut_off else None,
            seed=self._seed(),
            samplers=samplers,
            max_tokens=self.limit,
            learned="probe",
            probed_at=datetime.now(UTC),
            notices=tuple(self.notices),
        )

    def _body(self, tokens: int = 1, **more: Any) -> dict[str, Any]:
        return {"model": self.model, "messages": _MESSAGES, self.limit: tokens, **more}

    def _ask(self, **more: Any) -> Answer:
        return self.server.chat(self._body(**more))

    def _streamed(self, **more: Any) -> Answer | list[dict[str, Any]]:
        with self.server.stream(self._body(_STREAMED_TOKENS, **more)) as events:
            return events if isinstance(events, Answer) else list(islice(events, 4 * _STREAMED_TOKENS))

    def _plain(self) -> None:
        """A response at all, under either name of the limit."""
        self.limit = self.identity.preset.capabilities.max_tokens
        first = self._ask()
        if not first.ok and first.status == 400 and "max_" in first.message:
            self.limit = "max_completion_tokens" if self.limit == "max_tokens" else "max_tokens"
            first = self._ask()
        if first.ok and first.choices:
            return
        listed = self.identity.models
        if first.status == 404 and listed and self.model not in listed:
            raise ConfigurationError(
                f"{self.server.url} has no model {self.model!r}; it lists {', '.join(map(repr, listed[:20]))}"
            )
        raised = ServerBusy if first.status >= 500 else ServerError
        raise raised(f"{self.server.url} gives no chat completion ({first.message})")

    def _logprobs(self) -> tuple[bool, int | None]:
        """Whether there are logprobs, and the most alternatives that came with a token."""
        for asked in _K:
            answer = self._ask(logprobs=True, top_logprobs=asked)
            if not answer.refused:
                break
        else:
            refusal, asked = answer.message, 0
            answer = self._ask(logprobs=True)
            if answer.refused:
                self.notices.append(f"logprobs are refused ({refusal}): votes are counted")
                return False, None
        tokens, k = counted_logprobs(answer.choices)
        if not tokens:
            self.notices.append("logprobs are asked for and none come back: votes are counted")
            return False, None
        if not k:
            self.notices.append("only the chosen token's logprob comes back: use the token_logprob signal")
        k = min(k, asked)  # some return the chosen token beside the k likeliest
        if k == _K[0] and (answer := self._ask(logprobs=True, top_logprobs=_MANY)).ok:
            k = max(k, min(counted_logprobs(answer.choices)[1], _MANY))
        return True, k

    def _n(self) -> bool:
        answer = self._ask(n=2)
        if len(answer.choices) == 2:
            return True
        said = answer.message if answer.refused else f"{len(answer.choices)} came back"
        self.notices.append(f"n=2 gives no two responses ({said}): each sample is a request of its own")
        return False

    def _stream(self, logprobs: bool) -> dict[str, bool | None]:
        """What of streams :class:`Capabilities` holds."""
        asked = {"logprobs": True, "top_logprobs": 1} if logprobs else {}
        events = self._streamed(stream_options={"include_usage": True}, **asked)
        if isinstance(events, Answer):
            events = self._streamed(**asked)
        if isinstance(events, Answer):
            self.notices.append(f"no streams ({events.message}): a sample cannot be cut off")
            return {"streamed_logprobs": False, "streamed_usage": False}
        tokens = sum(counted_logprobs(event.get("choices"))[0] for event in events)
        usage = any(isinstance(event.get("usage"), dict) for event in events)
        reasoning = reasoning_logprobs(events) if logprobs else None
        if logprobs and not tokens:
            when = "" if reasoning is None else " while the model reasons"
            self.notices.append(f"streams carry no logprobs{when}: responses are taken whole, and cannot be cut off")
        elif reasoning is False:
            self.notices.append("streams carry no logprobs of the reasoning: confidence is that of the answer alone")
        if not usage:
            self.notices.append("streams carry no token counts: tokens are estimated from the chunks")
        return {"streamed_logprobs": tokens > 0, "streamed_usage": usage, "reasoning_logprobs": reasoning}

    def _stops(self, samplers: Mapping[str, str]) -> bool | None:
        """Whether the server stops when a stream is closed."""
        endless = {"ignore_eos": True} if "ignore_eos" in samplers else {}
        stops, why = stops_when_cut_off(self.server, self._body, endless)
        if why:
            self.notices.append(why)
        return stops

    def _seed(self) -> bool | None:
        """Whether a seed determines a response: the same twice, and another one with another seed."""
        texts = [self._text(seed) for seed in (1, 1, 2, 3)]
        if None in texts:
            return False
        if texts[0] != texts[1]:
            self.notices.append("the same seed gives different responses")
            return False
        if texts[0] == texts[2] == texts[3]:
            self.notices.append("responses with different seeds are equal: whether seeds count cannot be told")
            return None
        return True

    def _text(self, seed: int) -> str | None:
        answer = self._ask(tokens=_SEEDED_TOKENS, seed=seed, temperature=1.0)
        return str(answer.choices[0].get("message")) if answer.ok and answer.choices else None

    def _samplers(self) -> dict[str, str]:
        """Which parameters the server reads: found by wrong values, or right ones where it is strict.

        Lenient servers ignore unknown fields; strict ones refuse them.
        """
        strict = self._ask(no_such_field=_WRONG).refused
        found: dict[str, str] = {}
        for ours, (theirs, right) in _SAMPLERS.items():
            for name in theirs:
                answer = self._ask(**{name: right if strict else _WRONG})
                if answer.ok if strict else answer.refused:
                    found[ours] = name
                    break
        return found


_WRONG: Final = {"not": "a value of any parameter"}
