"""Chat models that say what a script tells them, and what is observed of calls, as plain JSON and text."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.outputs.chat_generation import merge_chat_generation_chunks
from pydantic import Field
from runnable import fakes
from runnable.fakes import Reply

from langchain_reasc import ESC
from langchain_reasc.method.decision import Decision, Response

USER: ContextVar[str] = ContextVar("USER", default="nobody")
"""A variable of the caller's."""
LOCAL = threading.local()
"""Something of the caller's thread."""


class Scripted(fakes.Scripted):
    """Replies as ``script(question, sample)`` says, by streams or not, synchronously and not."""

    told: Any = Field(default_factory=list)
    """The caller's context variable and thread-local, and the kind of thread, at each call."""

    @property
    def seen(self) -> list[tuple[str, int]]:
        """(question, sample) of each call, in order."""
        return self.log.calls  # type: ignore[no-any-return]

    def _begin(self, messages: Any) -> Any:
        self.told.append((USER.get(), getattr(LOCAL, "value", "nothing"), thread_kind()))
        return super()._begin(messages)


class SyncOnly(Scripted):
    """Has only the synchronous methods: LangChain runs them in threads for asynchronous callers."""

    _astream = BaseChatModel._astream
    _agenerate = BaseChatModel._agenerate


class AsyncOnly(Scripted):
    """Has only the asynchronous methods."""

    _stream = BaseChatModel._stream

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError("ask me asynchronously")


class Whole(Scripted):
    """Does not stream."""

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return _whole(list(Scripted._stream(self, messages)))

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return _whole([chunk async for chunk in Scripted._astream(self, messages)])

    _stream = BaseChatModel._stream
    _astream = BaseChatModel._astream


def _whole(chunks: list[ChatGenerationChunk]) -> ChatResult:
    merged = merge_chat_generation_chunks(chunks)
    assert merged is not None
    return ChatResult(generations=[merged])


KINDS: dict[str, type[Scripted]] = {"both": Scripted, "sync-only": SyncOnly, "async-only": AsyncOnly, "whole": Whole}


def saying(*replies: str | Reply, kind: type[Scripted] = Scripted) -> Scripted:
    """A model whose sample i gives the i-th reply, the last one for all beyond."""
    given = [one if isinstance(one, Reply) else Reply(f"the answer is {one}") for one in replies]
    return kind(script=lambda question, index: given[min(index, len(given) - 1)])


@dataclass(frozen=True)
class Unforeseen(ESC):
    """ESC that no made-up answer stops: what decides is not foreseen, so that more samples are launched than needed."""

    first_wave = None

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = super().__call__(responses)
        return decision if decision.answer else replace(decision, stop=False)


def cut_off_wave(**fields: Any) -> Scripted:
    """Of a wave of four, samples 0 to 2 agree as soon as sample 3 has said three words, and says no more."""
    stalls = threading.Event()
    stall_at = 3 + (fields.get("usage") == "split")
    last = Reply("the answer is not yet known", stall_at=stall_at, done=stalls, **fields)
    return saying(*(Reply(opens=stalls, **fields) for _ in range(3)), last)


def thread_kind() -> str:
    """Where this runs: in an event loop, in the caller's (the main) thread, or in another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return "caller" if threading.current_thread() is threading.main_thread() else "worker"
    return "loop" if threading.current_thread() is threading.main_thread() else "other loop"


class Runs(BaseCallbackHandler):
    """All runs as a tree, and every event in the order it came in with the thread it came in."""

    def __init__(self, inline: bool = True) -> None:
        self.run_inline = inline
        self.runs: dict[Any, dict[str, Any]] = {}
        self.events: list[str] = []
        self.lock = threading.Lock()

    def _start(self, kind: str, run_id: Any, parent_run_id: Any, tags: Any, kwargs: Mapping[str, Any]) -> None:
        with self.lock:
            metadata = {key: one for key, one in (kwargs.get("metadata") or {}).items() if key.startswith("reasc")}
            told = {"kind": kind, "name": kwargs.get("name"), "parent": parent_run_id, "tags": sorted(tags or [])}
            self.runs[run_id] = told | {"metadata": metadata, "end": "open"}
            self._note(f"{kind} start", run_id)

    def _end(self, kind: str, run_id: Any, end: str) -> None:
        with self.lock:
            self.runs[run_id]["end"] = end
            self._note(f"{kind} {end.partition(' ')[0]}", run_id)

    def _note(self, event: str, run_id: Any) -> None:
        sample = [tag.removeprefix("reasc:") for tag in self.runs[run_id]["tags"] if tag.startswith("reasc:sample:")]
        self.events.append(" ".join([event, *sample, f"in {thread_kind()}"]))

    def on_chain_start(self, *args: Any, run_id: Any, parent_run_id: Any = None, tags: Any = None, **more: Any) -> None:
        self._start("chain", run_id, parent_run_id, tags, more)

    def on_chat_model_start(
        self, *args: Any, run_id: Any, parent_run_id: Any = None, tags: Any = None, **more: Any
    ) -> None:
        self._start("model", run_id, parent_run_id, tags, more)

    def on_tool_start(self, *args: Any, run_id: Any, parent_run_id: Any = None, tags: Any = None, **more: Any) -> None:
        self._start("tool", run_id, parent_run_id, tags, more)

    def on_chain_end(self, outputs: Any, *, run_id: Any, **kwargs: Any) -> None:
        self._end("chain", run_id, "end")

    def on_tool_end(self, output: Any, *, run_id: Any, **kwargs: Any) -> None:
        self._end("tool", run_id, "end")

    def on_llm_end(self, response: Any, *, run_id: Any, **kwargs: Any) -> None:
        message = response.generations[0][0].message
        usage = message.usage_metadata or {}
        estimated = " estimated" if message.response_metadata.get("usage_estimated") else ""
        tokens = f"{usage.get('input_tokens')}+{usage.get('output_tokens')}{estimated}"
        self._end("model", run_id, f"end {message.text!r} {tokens}")

    def on_llm_new_token(self, token: Any, *, run_id: Any, **kwargs: Any) -> None:
        with self.lock:
            self._note("token", run_id)

    def on_chain_error(self, error: BaseException, *, run_id: Any, **kwargs: Any) -> None:
        self._end(self.runs[run_id]["kind"], run_id, f"error {type(error).__name__}")

    on_llm_error = on_tool_error = on_chain_error

    def tree(self) -> list[str]:
        """A line for each run, indented below its parent; siblings by sample, else in the order they began."""
        order = {run_id: at for at, run_id in enumerate(self.runs)}
        lines: list[str] = []

        def sample(run_id: Any) -> tuple[int, int]:
            tags = [tag for tag in self.runs[run_id]["tags"] if tag.startswith("reasc:sample:")]
            return int(tags[0].rpartition(":")[2]) if tags else -1, order[run_id]

        def below(parent: Any, depth: int) -> None:
            of_parent = [run_id for run_id, run in self.runs.items() if run["parent"] == parent]
            for run_id in sorted(of_parent, key=sample):
                run = self.runs[run_id]
                metadata = f" {json.dumps(run['metadata'])}" if run["metadata"] else ""
                told = f"{run['kind']} {run['name']} [{', '.join(run['tags'])}]{metadata} -> {run['end']}"
                lines.append("  " * depth + told)
                below(run_id, depth + 1)

        below(None, 0)
        return lines

    def assert_closed(self, seconds: float = 60) -> None:
        """No run stays open for long."""
        deadline = time.monotonic() + seconds
        while left := [run for run in self.runs.values() if run["end"] == "open"]:
            assert time.monotonic() < deadline, f"runs left open: {left}"
            time.sleep(0.005)


def without_ids(value: Any) -> Any:
    """The value, as JSON would have it, with ids that differ from run to run named alike."""
    text = json.dumps(value, default=repr)
    text = re.sub(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", "UUID", text)
    return json.loads(re.sub(r" at 0x[0-9a-f]+", "", text))


def values_in(text: str) -> str:
    """The numbers, quoted texts, options and settings in a text, whose other words may change."""
    quoted, option, setting = r"(?<!\w)'[^']*'(?!\w)", "--[a-z][a-z-]*", r"\w+=[^\s,;)]+"
    number = r"[-+]?[\w./]*\d[\w%]*(?:[.,/]\w+%?)*"
    return " ".join(re.findall(f"{quoted}|{option}|{setting}|{number}", text))


def without_words(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with the values in a sentence in place of the sentence."""
    kept = dict(fields)
    for name in ("guarantee", "abstained_because", "doubt"):
        if fields.get(name):
            kept[name] = values_in(fields[name])
    if "notices" in fields:
        kept["notices"] = [values_in(notice) for notice in fields["notices"]]
    return kept


def said(message: AIMessage | None) -> Any:
    """A message whole, but for logprobs and the words of sentences."""
    if message is None:
        return None
    metadata = {key: one for key, one in message.response_metadata.items() if key != "logprobs"}
    if "reasc" in metadata:
        metadata["reasc"] = without_words(metadata["reasc"])
    whole = {"content": message.content, "calls": message.tool_calls, "id": message.id, "metadata": metadata}
    return without_ids(whole | {"usage": message.usage_metadata, "type": type(message).__name__})


def decided(decision: Any) -> dict[str, Any]:
    """A decision whole."""
    names = ("stop", "answer", "reason", "samples", "stage", "evidence", "posterior", "whole")
    parts = {name: decided(part) for name, part in decision.parts.items()}
    return {name: getattr(decision, name) for name in names} | {"hopeless": decision.never_agrees, "parts": parts}


def told(result: Any) -> dict[str, Any]:
    """A result whole, but for the words of sentences."""
    names = ("index", "status", "used", "answer", "score", "weight", "output_tokens")
    usage, of_result = result.usage, ("answer", "p_correct", "p_agree", "undecided", "doubt", "notices")
    return {
        "message": said(result.message),
        "decision": decided(result.decision),
        "responses": [
            {name: getattr(one, name) for name in names}
            | {"error": one.error and repr(one.error), "message": said(one.message)}
            for one in result.responses
        ],
        "usage": {"bill": usage.bill, "unused": usage.unused_output_tokens, "estimated": usage.estimated}
        | {"judge": usage.judge},
        **without_words({name: getattr(result, name) for name in of_result}),
        "failures": [repr(one) for one in result.failures],
    }


def raised(call: Callable[[], Any]) -> Any:
    """The error of a call and what it was raised from, a line each; where there is none, what the call gives."""
    try:
        return call()
    except BaseException as error:
        seen, lines, how = error, [], ""
        while True:
            retryable = f" (retryable {seen.is_retryable})" if hasattr(seen, "is_retryable") else ""
            lines.append(f"{how}{type(seen).__name__}{retryable}: {values_in(without_ids(str(seen)))}")
            cause, context = seen.__cause__, None if seen.__suppress_context__ else seen.__context__
            how = "cause: " if cause is not None else "context: "
            if (following := cause or context) is None:
                return lines
            seen = following
