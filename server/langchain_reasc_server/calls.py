"""Requests for chat completions: what they ask of the model and of the vote, and
whether they are voted on.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from langchain_reasc.agents.inner_model import asks_for_structure
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_server.conversation import read_messages
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.wire import Json, replayed

Hear = Callable[[list[bytes]], None]
"""Called with the JSON of the events of a response so far, each time more of them have
arrived.
"""
HEADER: Final = "x-reasc-"
COUNTED: Final = "none"
"""The name that means no calibration, so that votes are counted."""
_SUFFIX: Final = ":reasc"


@dataclass(frozen=True, kw_only=True)
class VotePolicy:
    """The operator's policy for votes.

    Attributes:
        answer: where the answer is in a text; ``"message"`` votes only on tool calls
            and structured output.
        max_samples: the most samples of a request, whatever the request asks for.
        rule: the stopping rule, as for ``reasc ask --rule``; with None the calibration
            decides.
        calibration: ``"online"``, a file, or None to count votes.
        offered: name -> file of the calibrations that a request may choose.
        state: the file in which ``"online"`` keeps what it has learned.
        concurrency: samples of a request launched at once.
        in_flight: samples in flight at once, of all requests together; None for any
            number.
    """

    answer: str = "message"
    max_samples: int = 16
    rule: str | None = None
    calibration: str | None = "online"
    offered: Mapping[str, str] = field(default_factory=dict)
    state: str | None = None
    concurrency: int = 4
    in_flight: int | None = None


class Wishes(BaseModel):
    """What a request may ask of its vote: in its field ``reasc``, in headers, or after
    the name of its model.

    A header is called ``x-reasc-max-samples``, say. ``MODEL:reasc-8`` means 8 samples
    of ``MODEL``, for clients whose users can choose nothing but a model.

    Attributes:
        answer: where the answer is in a text.
        max_samples: the most samples.
        rule: the name of a stopping rule, without parameters.
        abstain_below: give no answer that is less likely right than this.
        calibration: the name of a calibration that the operator offers, or ``"none"``.
        usage: which tokens are reported as usage: of all samples, or of the winner.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    answer: str | None = Field(default=None, max_length=1000)
    max_samples: int | None = Field(default=None, ge=1)
    rule: str | None = Field(default=None, max_length=1000)
    abstain_below: float | None = None
    calibration: str | None = Field(default=None, max_length=1000)
    usage: Literal["all", "winner"] = "all"

    @field_validator("answer")
    @classmethod
    def _no_pattern(cls, answer: str | None) -> str | None:
        if answer is not None and answer.startswith("regex"):
            raise ValueError(
                "a pattern (regex) can only be given by the operator, because it could "
                "block the server"
            )
        return answer

    @field_validator("rule")
    @classmethod
    def _no_parameters(cls, rule: str | None) -> str | None:
        if rule is not None and ":" in rule:
            raise ValueError("a request names a rule without parameters, such as 'asc'")
        return rule

    @classmethod
    def in_request(
        cls, given: Any, headers: Mapping[str, str], suffix: str = ""
    ) -> "Wishes":
        """Read the wishes of a request.

        Its field ``reasc`` comes before its headers, and these before the suffix that
        follows ``:reasc-`` in its model.

        Raises:
            ConfigurationError: an option is unknown, or has a wrong value.
        """
        named = {name: HEADER + name.replace("_", "-") for name in cls.model_fields}
        texts = {"max_samples": suffix} if suffix else {}
        texts |= {
            name: headers[header] for name, header in named.items() if header in headers
        }
        try:
            by_text = cls.model_validate_strings(texts).model_dump(exclude_unset=True)
            by_field = cls.model_validate({} if given is None else given).model_dump(
                exclude_none=True, exclude_unset=True
            )
        except ValidationError as error:
            said = findings(error, whole="reasc", names=cls.model_fields)
            raise ConfigurationError(f"reasc: {'; '.join(said)}") from None
        return cls(**by_text | by_field)


@dataclass(frozen=True, eq=False)
class Call:
    """A request for a chat completion.

    Attributes:
        body: the client's request without its wishes for the vote.
        asked: what the client asks of the vote: name of an option -> value.
        changed: whether ``body`` differs from what the client sent.
        headers: the client's headers that the upstream should see.
        served: the model of the server, for a request without a model.
        usage: the tokens that are reported as usage: of ``"all"`` samples, or of the
            ``"winner"``.
    """

    body: Json
    asked: Mapping[str, Any] = field(default_factory=dict)
    changed: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    served: str = ""
    usage: str = "all"

    @classmethod
    def from_request(
        cls,
        body: Json,
        headers: Mapping[str, str],
        forwarded: Mapping[str, str],
        served: str = "",
    ) -> "Call":
        """Split a request into what it asks of the model and what it asks of the vote.

        Raises:
            ConfigurationError: the request asks for something wrong.
            Refused: a field that is true or false has another value.
        """
        _check_switches(body)
        kept = {name: value for name, value in body.items() if name != "reasc"}
        model, suffix = kept.get("model"), ""
        if isinstance(model, str) and _SUFFIX in model:
            kept["model"], _, suffix = model.partition(_SUFFIX)
        wishes = Wishes.in_request(body.get("reasc"), headers, suffix.removeprefix("-"))
        asked = wishes.model_dump(exclude_none=True)
        usage = asked.pop("usage")
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
        if not _is_list_of_objects(body.get("messages")) or not (
            tools is None or _is_list_of_objects(tools)
        ):
            return "not understood"
        for name, is_one_response in _NOT_VOTED.items():
            if (value := body.get(name)) is not None and is_one_response(value):
                return name
        if self.most_samples(votes) == 1:
            return "max_samples"
        calls = bool(tools) and body.get("tool_choice") != "none"
        return (
            None
            if calls or not self.votes_on_calls_alone(votes)
            else "nothing to vote on"
        )

    def most_samples(self, votes: VotePolicy) -> int:
        """Return the most samples that a vote on the request draws."""
        return min(
            votes.max_samples, int(self.asked.get("max_samples", votes.max_samples))
        )

    def votes_on_calls_alone(self, votes: VotePolicy) -> bool:
        """Return whether a response without tool calls is the answer, without a vote."""
        structure = asks_for_structure(self.body) and self.body.get(
            "response_format"
        ) != {"type": "text"}
        return not structure and self.asked.get("answer", votes.answer) == "message"

    def shown(self, events: Iterable[Json], head: Mapping[str, Any]) -> Iterator[Json]:
        """Yield the events of a response for the client, with the id and time of
        ``head``.
        """
        own = {
            "id": head["id"],
            "created": head["created"],
            **({"usage": None} if self.wants_usage else {}),
        }
        for event in replayed(events):
            yield {**event, **own, "choices": self.trimmed(event["choices"])}

    def trimmed(self, choices: Iterable[Json]) -> list[Json]:
        """Return choices with as many logprobs as the client asked for."""
        k = self.body.get("top_logprobs") or 0
        return [
            {
                **one,
                "logprobs": _with_alternatives(one.get("logprobs"), k)
                if self.body.get("logprobs")
                else None,
            }
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
"""Fields of a request -> whether a value makes all samples equal, or asks for several
answers.
"""


_SWITCHES: Final = ("stream", "logprobs", "parallel_tool_calls", "store", "background")
"""Fields of a request, of either API, that are true or false."""


def _check_switches(body: Json) -> None:
    """Check the fields that are true or false, because ``"false"`` would count as true.

    Raises:
        Refused: one has another value.
    """
    options = body.get("stream_options")
    switches = {name: body.get(name) for name in _SWITCHES}
    switches["stream_options.include_usage"] = (
        options.get("include_usage") if isinstance(options, dict) else None
    )
    for name, value in switches.items():
        if not isinstance(value, bool | None):
            said = f"{name} is {json.dumps(value)[:40]}; it takes true or false"
            raise Refused(400, said, param=name, code="invalid_value")


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


_MOST_MESSAGES: Final = 4096
"""A longer conversation is given to LangChain as one text, because checking each
message would take a second.
"""


def messages_of(body: Mapping[str, Any]) -> list[BaseMessage]:
    """Return the messages of a request, for traces and for learning. Never raises."""
    if len(body["messages"]) > _MOST_MESSAGES:
        return [HumanMessage(str(body["messages"]))]
    try:
        messages = read_messages(body["messages"])
        for message in messages:
            if isinstance(message.content, list):
                # which LangChain reads before it calls a model
                _ = message.content_blocks
    except Exception:
        # a message that LangChain does not know, but perhaps the upstream does
        return [HumanMessage(str(body["messages"]))]
    return messages


def _with_alternatives(logprobs: Any, k: int) -> Any:
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("content"), list):
        return logprobs
    content = [
        {**token, "top_logprobs": (token.get("top_logprobs") or [])[:k]}
        for token in logprobs["content"]
    ]
    return {**logprobs, "content": content}
