"""A request for a chat completion: what it asks of the model and of the vote, and whether it is voted on."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages

from langchain_reasc.agents.inner_model import asks_for_structure
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_server.wire import Json, replayed

__all__ = ["COUNTED", "HEADER", "OPTIONS", "Call", "Hear", "VotePolicy", "messages_of"]

Hear = Callable[[list[bytes]], None]
"""Called with the JSON of the events of a response so far, each time one has come."""
_SUFFIX: Final = ":reasc"
HEADER: Final = "x-reasc-"
OPTIONS: Final[Mapping[str, Callable[[str], Any]]] = {
    "answer": str,
    "max_samples": int,
    "rule": str,
    "abstain_below": float,
    "calibration": str,
    "usage": str,
}
"""What a request may ask of the vote, and of its account -> how a header spells it."""
COUNTED: Final = "none"
"""The calibration that counts votes."""
_LONGEST_WISH: Final = 1000  # characters
_SHOWN: Final = 100  # characters of a wrong value


@dataclass(frozen=True, kw_only=True)
class VotePolicy:
    """How requests are voted on, as the operator says.

    Attributes:
        answer: where the answer is in a text; ``"message"`` votes on calls of tools and structured output alone.
        max_samples: the most samples of a request, whatever the request asks for.
        rule: when to stop, as ``reasc ask --rule`` takes it; with None the calibration decides.
        calibration: ``"online"``, a file, or None to count votes.
        offered: name -> file of calibrations that a request may choose.
        state: the file in which ``"online"`` keeps what it has learned.
        worth: samples for one more point of agreement, see ``Options.worth``.
        concurrency: samples of a request launched at once.
        in_flight: samples in flight at once, of all requests together; None for any number.
    """

    answer: str = "message"
    max_samples: int = 16
    rule: str | None = None
    calibration: str | None = "online"
    offered: Mapping[str, str] = field(default_factory=dict)
    state: str | None = None
    worth: float | None = None
    concurrency: int = 4
    in_flight: int | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """A request for a chat completion.

    Attributes:
        body: as the client wrote it, without what it asks of the vote.
        asked: what the client asks of the vote: name of an option -> value.
        changed: whether ``body`` differs from what the client sent.
        headers: the client's headers that the upstream should see.
        served: the model that is served, for a client that names none.
        usage: whose tokens are reported as usage: of ``"all"`` samples, or of the ``"winner"``.
    """

    body: Json
    asked: Mapping[str, Any] = field(default_factory=dict)
    changed: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    served: str = ""
    usage: str = "all"

    @classmethod
    def from_request(
        cls, body: Json, headers: Mapping[str, str], forwarded: Mapping[str, str], served: str = ""
    ) -> "Call":
        """Read what a request asks of the vote: in its field ``reasc``, in headers, or at the end of its model's name.

        Raises:
            ConfigurationError: the request asks for something wrong.
        """
        kept = {name: value for name, value in body.items() if name != "reasc"}
        asked: dict[str, Any] = {}
        model = kept.get("model")
        if isinstance(model, str) and _SUFFIX in model:
            kept["model"], _, number = model.partition(_SUFFIX)
            if number:
                asked["max_samples"] = _converted("max_samples", number.removeprefix("-"), int)
        for name, convert in OPTIONS.items():
            if (text := headers.get(HEADER + name.replace("_", "-"))) is not None:
                asked[name] = _converted(name, text, convert)
        given = body.get("reasc")
        if not isinstance(given, dict | None):
            raise ConfigurationError(f"reasc is an object with any of {', '.join(OPTIONS)}, got {given!r}")
        for name, value in (given or {}).items():
            if name not in OPTIONS:
                raise ConfigurationError(f"reasc has no option {name!r}; it takes {', '.join(OPTIONS)}")
            asked[name] = _checked(name, value)
        usage = asked.pop("usage", "all")
        return cls(kept, asked, kept != body, forwarded, served, usage)

    @property
    def streamed(self) -> bool:
        """Whether the client wants a stream."""
        return bool(self.body.get("stream"))

    @property
    def responses(self) -> int:
        """How many responses the client asks for."""
        n = self.body.get("n")
        return n if isinstance(n, int) and n > 0 else 1

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with the usage."""
        options = self.body.get("stream_options")
        return isinstance(options, dict) and bool(options.get("include_usage"))

    @property
    def model(self) -> str:
        """The model that the client names, or else the one that is served."""
        return str(self.body.get("model") or self.served)

    def why_not_voted(self, votes: VotePolicy) -> str | None:
        """Return why the request is passed through, or None if it is voted on."""
        body = self.body
        tools = body.get("tools")
        if not _is_list_of_objects(body.get("messages")) or not (tools is None or _is_list_of_objects(tools)):
            return "not understood"
        for name, is_one_response in _NOT_VOTED.items():
            if (value := body.get(name)) is not None and is_one_response(value):
                return name
        if self.most_samples(votes) == 1:
            return "max_samples"
        calls = bool(tools) and body.get("tool_choice") != "none"
        return None if calls or not self.votes_on_calls_alone(votes) else "nothing to vote on"

    def most_samples(self, votes: VotePolicy) -> int:
        """Return the most samples that a vote on the request draws."""
        return min(votes.max_samples, int(self.asked.get("max_samples", votes.max_samples)))

    def votes_on_calls_alone(self, votes: VotePolicy) -> bool:
        """Return whether a response without a call of a tool is the answer, without a vote."""
        structure = asks_for_structure(self.body) and self.body.get("response_format") != {"type": "text"}
        return not structure and self.asked.get("answer", votes.answer) == "message"

    def shown(self, events: Iterable[Json], head: Mapping[str, Any]) -> Iterator[Json]:
        """Yield events of a response as the client sees them, with the id and time of ``head``."""
        own = {"id": head["id"], "created": head["created"], **({"usage": None} if self.wants_usage else {})}
        for event in replayed(events):
            yield {**event, **own, "choices": self.trimmed(event["choices"])}

    def trimmed(self, choices: Iterable[Json]) -> list[Json]:
        """Return choices with as many logprobs as the client asked for."""
        k = self.body.get("top_logprobs") or 0
        return [
            {**one, "logprobs": _with_alternatives(one.get("logprobs"), k) if self.body.get("logprobs") else None}
            for one in choices
        ]


_NOT_VOTED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "n": lambda value: value != 1,
    "temperature": lambda value: value == 0,
    "top_p": lambda value: value == 0,
    "top_k": lambda value: value == 1,
    "seed": lambda value: True,
    "modalities": lambda value: value != ["text"],
    "audio": lambda value: True,
    "functions": lambda value: True,
}
"""Fields of a request -> whether this value makes all samples equal, or asks for several answers."""


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _converted(name: str, text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return _checked(name, convert(text))
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"{name} is {text!r}, not of type {convert.__name__}") from None


def _checked(name: str, value: Any) -> Any:
    kind: Any = (int, float) if name == "abstain_below" else OPTIONS[name]
    is_allowed = _ALLOWED.get(name, lambda value: True)
    is_kind = isinstance(value, kind) and not isinstance(value, bool) and len(str(value)) <= _LONGEST_WISH
    if not (is_kind and is_allowed(value)):
        raise ConfigurationError(f"reasc.{name} is {str(value)[:_SHOWN]!r}; it takes {_TAKES[name]}")
    return value


_ALLOWED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "answer": lambda value: not value.startswith("regex"),
    "max_samples": lambda value: value >= 1,
    "rule": lambda value: ":" not in value,
    "usage": lambda value: value in ("all", "winner"),
}
"""Options -> which values clients may give. A pattern of theirs could take a second of each sample."""


_TAKES: Final = {
    "answer": "'number', 'message', 'json:FIELD' or another format by its name; a pattern only the operator gives",
    "max_samples": "a whole number from 1",
    "rule": "the name of a rule, such as 'asc', without parameters",
    "abstain_below": "a probability between 0 and 1",
    "calibration": "the name of a calibration that the operator offers, or 'none'",
    "usage": "'all' or 'winner'",
}


_MOST_MESSAGES: Final = 4096
"""LangChain gets a longer conversation as one text: checking each message would hold up everybody for a second."""


def messages_of(body: Mapping[str, Any]) -> list[BaseMessage]:
    """Return the messages of a request, for traces and for learning. Never raises."""
    if len(body["messages"]) > _MOST_MESSAGES:
        return [HumanMessage(str(body["messages"]))]
    try:
        messages = convert_to_messages(body["messages"])
        for message in messages:
            if isinstance(message.content, list):
                _ = message.content_blocks  # which LangChain reads before it calls a model
    except Exception:  # of a kind that LangChain does not know, and the upstream may
        return [HumanMessage(str(body["messages"]))]
    return messages


def _with_alternatives(logprobs: Any, k: int) -> Any:
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("content"), list):
        return logprobs
    content = [{**token, "top_logprobs": (token.get("top_logprobs") or [])[:k]} for token in logprobs["content"]]
    return {**logprobs, "content": content}
