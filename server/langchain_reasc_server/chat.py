"""The vote on a chat completion: what a request asks for, who solves it, and how the winner is given back."""

import asyncio
import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
from langchain_reasc_openai.client import EVENTS

from langchain_reasc.agents.chat_model import ChatReASC
from langchain_reasc.agents.inner_model import asks_for_structure
from langchain_reasc.calibration import ConsensusCalibrator, Observed, OnlineState
from langchain_reasc.cli.ask import parse_rule
from langchain_reasc.cli.inspect import calibration_knows, learning_knows
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.wire import (
    Json,
    event_of,
    events_of,
    has_own_indices,
    merged,
    message_in,
    new_id,
    replayed,
    reply_of,
    usage_of,
    with_message,
)

__all__ = ["Call", "FirstResponse", "Hear", "Solver", "Upstream", "Votes", "Won", "messages_of", "role_event"]

Hear = Callable[[list[Json]], None]
_SUFFIX: Final = ":reasc"
_HEADER: Final = "x-reasc-"
_OPTIONS: Final[Mapping[str, Callable[[str], Any]]] = {
    "answer": str,
    "max_samples": int,
    "rule": str,
    "abstain_below": float,
    "calibration": str,
    "usage": str,
}
"""What a request may ask of the vote, and of its account -> how a header spells it."""
_USAGES: Final = ("all", "winner")
_NONE: Final = "none"
"""The calibration that counts votes."""
_LONGEST_WISH: Final = 1000  # characters; a pattern of a million takes seconds to compile
_MOST_WISHES: Final = 64
"""Sets of what requests ask of the vote, for which a solver is kept."""
_MOST_MODELS: Final = 8
"""Models besides the operator's that something is learned of."""


@dataclass(frozen=True, kw_only=True)
class Votes:
    """How the operator has requests voted on.

    Attributes:
        answer: where the answer is in a text; ``"message"`` votes on calls of tools and structured output alone.
        max_samples: samples of a request at most, whatever it asks for.
        rule: when to stop, as ``reasc ask --rule`` takes it; None leaves that to the calibration.
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
        asked: what it asks of the vote: name of an option -> value.
        changed: whether ``body`` is not the client's own, byte for byte.
        headers: those of the client's that its upstream should see.
        served: the model that is served, for a client that names none.
        usage: whose tokens its usage is: of ``"all"`` samples, or of the ``"winner"``.
    """

    body: Json
    asked: Mapping[str, Any] = field(default_factory=dict)
    changed: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    served: str = ""
    usage: str = "all"

    @classmethod
    def of(cls, body: Json, headers: Mapping[str, str], forwarded: Mapping[str, str], served: str = "") -> "Call":
        """Read a request: its field ``reasc``, or else its headers, or else the end of its model's name.

        Raises:
            ConfigurationError: what it asks of the vote is wrong.
        """
        kept = {name: value for name, value in body.items() if name != "reasc"}
        asked: dict[str, Any] = {}
        model = kept.get("model")
        if isinstance(model, str) and _SUFFIX in model:
            kept["model"], _, number = model.partition(_SUFFIX)
            if number:
                asked["max_samples"] = _converted("max_samples", number.removeprefix("-"), int)
        for name, convert in _OPTIONS.items():
            if (text := headers.get(_HEADER + name.replace("_", "-"))) is not None:
                asked[name] = _converted(name, text, convert)
        given = body.get("reasc")
        if not isinstance(given, dict | None):
            raise ConfigurationError(f"reasc is an object with any of {', '.join(_OPTIONS)}, got {given!r}")
        for name, value in (given or {}).items():
            if name not in _OPTIONS:
                raise ConfigurationError(f"reasc has no option {name!r}; it takes {', '.join(_OPTIONS)}")
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

    def why_not_voted(self, votes: Votes) -> str | None:
        """Return why it is passed through as one request; None where it is voted on."""
        body = self.body
        tools = body.get("tools")
        if not _is_list_of_objects(body.get("messages")) or not (tools is None or _is_list_of_objects(tools)):
            return "not understood"
        for name, is_one_response in _ALONE.items():
            if (value := body.get(name)) is not None and is_one_response(value):
                return name
        if min(votes.max_samples, self.asked.get("max_samples", votes.max_samples)) == 1:
            return "max_samples"
        calls = bool(tools) and body.get("tool_choice") != "none"
        return None if calls or not self.votes_on_calls_alone(votes) else "nothing to vote on"

    def votes_on_calls_alone(self, votes: Votes) -> bool:
        """Return whether a response that calls no tool is the answer, without a vote."""
        structure = asks_for_structure(self.body) and self.body.get("response_format") != {"type": "text"}
        return not structure and self.asked.get("answer", votes.answer) == "message"

    def shown(self, events: Iterable[Json], head: Mapping[str, Any]) -> Iterator[Json]:
        """Yield events of a response as the client sees them, in a stream that has begun with the id of ``head``."""
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


_ALONE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "n": lambda value: value != 1,
    "temperature": lambda value: value == 0,
    "top_p": lambda value: value == 0,
    "top_k": lambda value: value == 1,
    "seed": lambda value: True,
    "modalities": lambda value: value != ["text"],
    "audio": lambda value: True,
    "functions": lambda value: True,
}
"""Fields of a request -> whether such a value leaves nothing to vote on, or more than one answer."""


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _converted(name: str, text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return _checked(name, convert(text))
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"{name} is {text!r}, which is no {convert.__name__}") from None


def _checked(name: str, value: Any) -> Any:
    kind: Any = (int, float) if name == "abstain_below" else _OPTIONS[name]
    known = name != "usage" or value in _USAGES
    if isinstance(value, bool) or not isinstance(value, kind) or not known or (name == "max_samples" and value < 1):
        raise ConfigurationError(f"reasc.{name} is {value!r}; it takes {_TAKES[name]}")
    if isinstance(value, str) and len(value) > _LONGEST_WISH:
        raise ConfigurationError(f"reasc.{name} has {len(value):,} characters; it takes {_LONGEST_WISH:,} at most")
    return value


_TAKES: Final = {
    "answer": "a text such as 'number' or 'message'",
    "max_samples": "a whole number from 1",
    "rule": "the name of a rule, such as 'asc'",
    "abstain_below": "a probability between 0 and 1",
    "calibration": "the name of one that the operator offers, or 'none'",
    "usage": "'all' or 'winner'",
}


_MOST_MESSAGES: Final = 4096
"""Of a longer conversation LangChain sees one text: checking each message would hold up everybody for a second."""


def messages_of(body: Mapping[str, Any]) -> list[BaseMessage]:
    """Return the messages of a request, which serve its trace and what is learned; never fail."""
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


class Upstream(Protocol):
    """Where responses come from.

    Attributes:
        model: the name of the model that is voted on with what was learned of it.
    """

    model: str

    @property
    def chat_model(self) -> BaseChatModel:
        """What is sampled."""

    def is_own(self, model: str) -> bool:
        """Return whether a request for a model of this name is answered by the one that was learned of."""

    async def solve(self, solver: ChatReASC, call: Call, hear: Hear, limit: int | None) -> AIMessage:
        """Return the winner of a request.

        Args:
            solver: who solves it.
            call: the request.
            hear: called with the events of a response so far, each time one has come, from any thread; once with none
                where there are no events.
            limit: samples in flight at once, of all requests together.
        """


@dataclass(frozen=True, eq=False)
class Won:
    """The winner of a request, in the form that its client asked for."""

    call: Call
    message: AIMessage
    max_samples: int
    notice: str | None = None

    @property
    def account(self) -> Json:
        """What is said of the vote: samples, votes, tokens, and how sure it is."""
        told = self.message.response_metadata["reasc"]
        said: Json = {name: told[name] for name in ("id", "kind", "answer") if name in told}
        said["notices"] = [*([self.notice] if self.notice else []), *told["notices"]]
        probabilities = {name: told[name]["value"] for name in ("p_correct", "p_agree") if name in told}
        abstained = {name: told[name] for name in ("abstained", "abstained_because") if name in told}
        return {
            "samples": told["launched"],
            "stop": told["reason"],
            "votes": told["evidence"],
            **said,
            **probabilities,
            **abstained,
            "tokens": {"spent": told["tokens"]["input"] + told["tokens"]["output"], "saved": self.tokens_saved},
            "winner": self._own_usage(),
        }

    @property
    def tokens_saved(self) -> int:
        """Tokens that ``max_samples`` responses as long as those of the vote would have cost more."""
        told: Json = self.message.response_metadata["reasc"]
        tokens: dict[str, int] = told["tokens"]
        if told["reason"] == "alone" or not told["samples"]:
            return 0
        each = tokens["input"] / told["launched"] + (tokens["output"] - tokens["unused_output"]) / told["samples"]
        return max(0, int(self.max_samples * each - tokens["input"] - tokens["output"]))

    def _own_usage(self) -> Json:
        """Return the tokens of the winner alone, as far as they are known."""
        own = next((event["usage"] for event in reversed(self._events) if event.get("usage")), None)
        if own is None:
            told = self.message.response_metadata["reasc"]
            prompt = round(told["tokens"]["input"] / told["launched"])
            return {"prompt_tokens": prompt, "completion_tokens": told["tokens"]["winner"]}
        return {name: own.get(name) for name in ("prompt_tokens", "completion_tokens")}

    @property
    def usage(self) -> Json | None:
        """The bill of all samples; the winner's own tokens where the client asks for these, to count its context."""
        bill = usage_of(self.message.usage_metadata)
        if bill is None or self.call.usage == "all":
            return bill
        prompt, generated = (count or 0 for count in self._own_usage().values())
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}

    @property
    def headers(self) -> dict[str, str]:
        """The account, as far as headers hold it."""
        account = self.account
        said = {"samples": account["samples"], "stop": account["stop"], "tokens-saved": account["tokens"]["saved"]}
        if "p_correct" in account:
            said["p-correct"] = format(account["p_correct"], ".4f")
        if "id" in account:
            said["id"] = account["id"]
        return {_HEADER + name: str(value) for name, value in said.items()}

    @property
    def whole(self) -> Json:
        """The reply in one piece."""
        reply, _ = self._reply()
        return {**reply, "usage": self.usage, "reasc": self.account}

    def events(self, head: Mapping[str, Any], passed: Sequence[Json] = ()) -> Iterator[Json]:
        """Yield the events of a stream that has begun with the id and the time of ``head``.

        Args:
            head: of the first event.
            passed: the events of a first response that the client has seen already.

        Raises:
            Refused: that response broke off, and another cannot go on from where it was.
        """
        reply, is_own = self._reply()
        said = self._events if is_own and has_own_indices(self._events) else [*events_of(reply)]
        events = [*self.call.shown(_left(said, passed), head)]
        if self.call.wants_usage:
            own = next((event for event in reversed(self._events) if event.get("usage")), {})
            last = event_of({**reply, "id": head["id"], "created": head["created"]}, None)
            events.append({**own, **last, "usage": self.usage})
        events[-1] = {**events[-1], "reasc": self.account}
        yield from events

    @property
    def _events(self) -> list[Json]:
        events: list[Json] = self.message.response_metadata.get(EVENTS) or []
        return events

    def _reply(self) -> tuple[Json, bool]:
        """Return the reply, and whether it is what the upstream itself has said."""
        reply = merged(self._events) if self._events else reply_of(self.message, self.call.model)
        changed = with_message(reply, self.message) if self._events else reply
        reply = changed or reply
        return {**reply, "choices": self.call.trimmed(reply["choices"])}, changed is None


_TEXTS: Final = ("content", "reasoning", "reasoning_content", "refusal")


def _left(events: list[Json], passed: Sequence[Json]) -> list[Json]:
    """Return the winner's events that are to follow those that were passed on.

    Raises:
        Refused: it has another text than they, and cannot go on from where they were.
    """
    count = len(passed)
    if events[:count] == passed:
        return events[count:]
    said, winner = message_in(merged(passed)), message_in(merged(events))
    if not any(said.get(name) for name in _TEXTS):
        return events
    if not winner.get("tool_calls") and any(winner.get(name) for name in _TEXTS):
        raise Refused(502, "the upstream broke a response off that was passed on", code="upstream_error")
    return [
        {**event, "choices": [{**one, "delta": _calls_in(one)} for one in event.get("choices") or ()]}
        for event in events
    ]


def _calls_in(choice: Mapping[str, Any]) -> Json:
    return {name: value for name, value in (choice.get("delta") or {}).items() if name == "tool_calls"}


class FirstResponse:
    """The text of a first response, passed on while it comes.

    With votes on calls of tools alone a response that calls none is the answer, and its text need not wait. From the
    first call on nothing more is passed on: the winner's calls follow, and what stood before the call is kept.
    """

    def __init__(self, *, live: bool) -> None:
        self.passed: list[Json] = []
        self._live, self._followed = live, list[Json]()
        self._arrived: list[Json] = []
        self._news, self._loop = asyncio.Event(), asyncio.get_running_loop()

    def hear(self, events: list[Json]) -> None:
        """Take the events of a response so far, from any thread; those of other responses are left out."""
        self._followed = self._followed or events
        if len(events) <= 1 or (self._live and events is self._followed):
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._arrive, events[-1:] if events is self._followed else [])

    def wake(self, *_: object) -> None:
        """End the waiting."""
        self._news.set()

    def _arrive(self, events: list[Json]) -> None:
        self._arrived += events
        self._news.set()

    async def news(self, seconds: float) -> list[Json] | None:
        """Wait for something to happen, and return the events to pass on; None where nothing did."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        arrived, self._arrived = self._arrived, []
        new = [event for event in arrived if self._passes(event)]
        self.passed += new
        return new

    def _passes(self, event: Json) -> bool:
        choices = event.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        self._live = self._live and choices[0].get("finish_reason") is None and not delta.get("tool_calls")
        return self._live


def _with_alternatives(logprobs: Any, k: int) -> Any:
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("content"), list):
        return logprobs
    content = [{**token, "top_logprobs": (token.get("top_logprobs") or [])[:k]} for token in logprobs["content"]]
    return {**logprobs, "content": content}


class Solver:
    """Solves requests, with what it learns of each model and of the operator's answers, and else by counting votes.

    Of a model other than the operator's something is learned once it has given an answer, in a file of its own beside
    the operator's: of eight such models at most, as clients name them.

    Raises:
        ConfigurationError: the operator's options are wrong.
        CalibrationFileError: the calibration, or what was learned before, cannot be read.
        FingerprintMismatch: that is of another model.
    """

    def __init__(self, upstream: Upstream, votes: Votes) -> None:
        self.upstream, self.votes = upstream, votes
        self._own = ChatReASC(
            model=upstream.chat_model,
            answer=votes.answer,
            max_samples=votes.max_samples,
            rule=None if votes.rule is None else parse_rule(votes.rule, budget=votes.max_samples),
            calibration=votes.calibration,
            online_state=votes.state,
            worth=votes.worth,
            concurrency=votes.concurrency,
        )
        self._models: dict[str, ChatReASC] = {}
        self._others: OrderedDict[tuple[Any, ...], ChatReASC] = OrderedDict()

    async def solve(self, call: Call, hear: Hear = lambda events: None) -> Won:
        """Return the winner of a request; ``hear`` as for :meth:`Upstream.solve`.

        A calibration that was measured on something else (another prompt, say) is left aside, and votes are counted.

        Raises:
            ConfigurationError: the request asks for a vote that cannot be.
            Exception: what the upstream refused it with, where no sample succeeded.
        """
        asked, own, notice = call.asked, self.votes.answer, None
        if (chosen := asked.get("calibration", _NONE)) != _NONE:
            return await self._won(self._solver(self._own, asked, self._offered(chosen)), call, hear)
        learns = asked.get("answer", own) == own and not asked.keys() & {"rule", "calibration"}
        of_model = self._own if self.upstream.is_own(call.model) else self._models.get(call.model)
        if learns and of_model is not None:
            try:
                return await self._won(self._solver(of_model, asked, self.votes.calibration), call, hear)
            except FingerprintMismatch:
                notice = "the calibration was measured on something else than such requests"
        won = await self._won(self._solver(self._own, asked, None), call, hear, notice)
        if learns and of_model is None and self.votes.calibration == "online" and len(self._models) < _MOST_MODELS:
            await asyncio.to_thread(self._learn_of, call.model)
        return won

    def _learn_of(self, model: str) -> None:
        """Learn of a model besides the operator's from its next answer on."""
        chat_model = self.upstream.chat_model.model_copy(update={"model_name": model})
        state = None if self.votes.state is None else _beside(self.votes.state, model)
        self._models[model] = self._own.model_copy(update={"model": chat_model, "online_state": state})

    def knows(self) -> list[str]:
        """Return what was learned, or is known of the calibration, in lines of 80 columns."""
        learning, calibration = self.learning(), self._own.learned
        if learning is not None:
            state, questions = learning
            others = [
                f"Also       {model}: {_learning(one)[0].seen:,} questions" for model, one in self._models.items()
            ]
            return [*learning_knows(state, calibration, questions), *others]
        return ["votes are counted"] if calibration is None else [*calibration_knows(calibration)]

    def learning(self) -> tuple[OnlineState, Sequence[Observed]] | None:
        """Return what was learned so far, and the questions it was learned from; None where nothing is learned."""
        return None if self.votes.calibration != "online" else _learning(self._own)

    async def record_outcome(self, id: str, correct: bool) -> bool:
        """Learn whether an answer was right, see :meth:`ChatReASC.record_outcome`. Return whether it is known."""
        for one in (self._own, *self._models.values()):
            if await one.arecord_outcome(id, correct):
                return True
        return False

    async def _won(self, solver: ChatReASC, call: Call, hear: Hear, notice: str | None = None) -> Won:
        message = await self.upstream.solve(solver, call, hear, self.votes.in_flight)
        return Won(call, message, solver.max_samples, notice)

    def _offered(self, name: str) -> str:
        """Return the file of a calibration that a request chooses."""
        if name not in self.votes.offered:
            named = ", ".join([*self.votes.offered, _NONE])
            raise ConfigurationError(f"there is no calibration {name!r} here; a request may choose {named}")
        return self.votes.offered[name]

    def _solver(self, base: ChatReASC, asked: Mapping[str, Any], calibration: str | None) -> ChatReASC:
        """Return a model's solver, or one with what a request asks for; the last few are kept.

        Args:
            base: the solver of a model.
            asked: what the request asks of the vote.
            calibration: ``"online"``, a file, or None to count votes.
        """
        update = {**asked, "max_samples": min(asked.get("max_samples", math.inf), self.votes.max_samples)}
        if calibration == "online" and "abstain_below" in asked:
            # By what has been learned until now: what still learns promises no probability.
            return base.model_copy(update={**update, "calibration": base.learned, "online_state": None})
        key = (id(base), *(update.get(name) for name in _OPTIONS), calibration)
        if (known := self._others.pop(key, None)) is None:
            update.pop("calibration", None)
            if calibration != self.votes.calibration:
                update |= {"calibration": calibration, "online_state": None}
            if "rule" in asked:
                update["rule"] = parse_rule(asked["rule"], budget=update["max_samples"])
            known = base.model_copy(update=update)
        self._others[key] = known
        if len(self._others) > _MOST_WISHES:
            self._others.popitem(last=False)
        return known


def _beside(state: str, model: str) -> str:
    """Return the file in which what is learned of another model is kept."""
    path, name = Path(state), re.sub(r"[^A-Za-z0-9.]+", "-", model)[-40:].strip(".-")
    return str(path.with_name(f"{path.stem}-{name}-{hashlib.sha256(model.encode()).hexdigest()[:6]}{path.suffix}"))


def _learning(solver: ChatReASC) -> tuple[OnlineState, Sequence[Observed]]:
    calibrator = solver.calibrator
    assert isinstance(calibrator, ConsensusCalibrator)
    return calibrator.state(), calibrator.questions


def role_event(call: Call) -> tuple[Json, Json]:
    """Return the first event of a stream, and the id, the time and the model that it has."""
    head: Json = {"id": new_id(), "created": int(time.time()), "model": call.model}
    return event_of(head, {"role": "assistant", "content": ""}), head
