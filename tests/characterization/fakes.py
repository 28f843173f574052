"""Chat models that say what a script tells them, and what is observed of calls, as plain JSON and text."""

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.outputs.chat_generation import merge_chat_generation_chunks
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

PROMPT_TOKENS = 7
USER: ContextVar[str] = ContextVar("USER", default="nobody")
"""A variable of the caller's."""
LOCAL = threading.local()
"""Something of the caller's thread."""
_TAGS: ContextVar[list[str]] = ContextVar("_TAGS")


@dataclass
class Reply:
    """One sample: each word is a token.

    ``logprob`` is every token's (None: none are given); ``usage`` is "end" (in the last chunk), "split" (as Anthropic
    does: the prompt's in the first chunk, the rest in the last) or "none"; ``error`` is raised after the words; after
    ``stall_at`` tokens nothing comes any more until the stream is closed; ``waits`` is waited for before the first
    token, and ``reached`` is set at the stall, or the end.
    """

    text: str = "the answer is 42"
    logprob: float | None = -0.1
    usage: str = "end"
    error: BaseException | None = None
    stall_at: int | None = None
    waits: Sequence[threading.Event] = ()
    reached: threading.Event = field(default_factory=threading.Event)
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    finish: str = "stop"
    delay: float = 0.0

    def chunks(self, index: int) -> Iterator[AIMessageChunk]:
        """The chunks before the last."""
        if self.usage == "split":
            yield AIMessageChunk(content="", usage_metadata=_usage(PROMPT_TOKENS, 0))
        for at, word in enumerate(self.text.split()):
            token = word if at == 0 else f" {word}"
            yield AIMessageChunk(content=token, response_metadata=_openai(token, self.logprob))
        for at, (name, arguments) in enumerate(self.calls):
            call = tool_call_chunk(name=name, args=json.dumps(arguments), id=f"call-{index}-{at}", index=at)
            yield AIMessageChunk(content="", tool_call_chunks=[call])

    def last(self) -> AIMessageChunk:
        """The last chunk."""
        if self.error is not None:
            raise self.error
        tokens = len(self.text.split()) + len(self.calls)
        usage = {"end": _usage(PROMPT_TOKENS, tokens), "split": _usage(0, tokens), "none": None}[self.usage]
        told = {"finish_reason": self.finish, "model_name": "scripted"}
        return AIMessageChunk(content="", usage_metadata=usage, response_metadata=told)


def _usage(given: int, generated: int) -> Any:
    return {"input_tokens": given, "output_tokens": generated, "total_tokens": given + generated}


def _openai(token: str, logprob: float | None) -> dict[str, Any]:
    if logprob is None:
        return {}
    one = {"token": token, "logprob": logprob, "bytes": None}
    return {"logprobs": {"content": [one | {"top_logprobs": [one, one]}]}}


class Scripted(BaseChatModel):
    """Replies as ``script(question, sample)`` says, by streams or not, synchronously and not."""

    script: Any
    model_name: str = "scripted"
    temperature: float | None = 1.0
    seen: Any = Field(default_factory=list)
    """(question, sample) of each call, in order."""
    told: Any = Field(default_factory=list)
    """The caller's context variable and thread-local, and the kind of thread, at each call."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def stream(self, input: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:
        _TAGS.set((config or {}).get("tags") or [])
        yield from super().stream(input, config, **kwargs)

    async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        _TAGS.set((config or {}).get("tags") or [])
        chunks = super().astream(input, config, **kwargs)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()  # type: ignore[attr-defined]

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        _TAGS.set((config or {}).get("tags") or [])
        return super().invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        _TAGS.set((config or {}).get("tags") or [])
        return await super().ainvoke(input, config, **kwargs)

    def _begin(self, messages: list[BaseMessage]) -> tuple[Reply, int]:
        tagged = [tag for tag in _TAGS.get([]) if tag.startswith("reasc:sample:")]
        question, index = str(messages[-1].content), int(tagged[-1].rpartition(":")[2]) if tagged else 0
        self.seen.append((question, index))
        self.told.append((USER.get(), getattr(LOCAL, "value", "nothing"), thread_kind()))
        return self.script(question, index), index

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        reply, index = self._begin(messages)
        for event in reply.waits:
            assert event.wait(10), f"sample {index} waited in vain"
        for at, chunk in enumerate(reply.chunks(index)):
            if at == reply.stall_at:
                reply.reached.set()
                while True:
                    time.sleep(0.002)
                    yield ChatGenerationChunk(message=AIMessageChunk(content=""))
            time.sleep(reply.delay)
            yield ChatGenerationChunk(message=chunk)
        yield ChatGenerationChunk(message=reply.last())
        reply.reached.set()

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        reply, index = self._begin(messages)
        while not all(event.is_set() for event in reply.waits):
            await asyncio.sleep(0.001)
        for at, chunk in enumerate(reply.chunks(index)):
            if at == reply.stall_at:
                reply.reached.set()
                while True:
                    await asyncio.sleep(0.002)
                    yield ChatGenerationChunk(message=AIMessageChunk(content=""))
            await asyncio.sleep(reply.delay)
            yield ChatGenerationChunk(message=chunk)
        yield ChatGenerationChunk(message=reply.last())
        reply.reached.set()

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return _whole(list(self._stream(messages)))

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return _whole([chunk async for chunk in self._astream(messages)])

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)


def _whole(chunks: list[ChatGenerationChunk]) -> ChatResult:
    merged = merge_chat_generation_chunks(chunks)
    assert merged is not None
    return ChatResult(generations=[merged])


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


KINDS: dict[str, type[Scripted]] = {"both": Scripted, "sync-only": SyncOnly, "async-only": AsyncOnly, "whole": Whole}


def saying(*replies: str | Reply, kind: type[Scripted] = Scripted) -> Scripted:
    """A model whose sample i gives the i-th reply, the last one for all beyond."""
    given = [one if isinstance(one, Reply) else Reply(f"the answer is {one}") for one in replies]
    return kind(script=lambda question, index: given[min(index, len(given) - 1)])


def cut_off_wave(**fields: Any) -> Scripted:
    """Of a wave of four, samples 0 to 2 agree as soon as sample 3 has said three words, and says no more."""
    last = Reply("the answer is not yet known", stall_at=3 + (fields.get("usage") == "split"), **fields)
    return saying(*(Reply(waits=[last.reached], **fields) for _ in range(3)), last)


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

    def assert_closed(self, seconds: float = 5) -> None:
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


def said(message: AIMessage | None) -> Any:
    """A message whole, but for logprobs."""
    if message is None:
        return None
    metadata = {key: one for key, one in message.response_metadata.items() if key != "logprobs"}
    whole = {"content": message.content, "calls": message.tool_calls, "id": message.id, "metadata": metadata}
    return without_ids(whole | {"usage": message.usage_metadata, "type": type(message).__name__})


def decided(decision: Any) -> dict[str, Any]:
    """A decision whole."""
    names = ("stop", "answer", "reason", "samples", "stage", "evidence", "posterior", "whole", "hopeless")
    parts = {name: decided(part) for name, part in decision.parts.items()}
    return {name: getattr(decision, name) for name in names} | {"parts": parts}


def told(result: Any) -> dict[str, Any]:
    """A result whole."""
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
        **{name: getattr(result, name) for name in of_result},
        "failures": [repr(one) for one in result.failures],
        "summary": result.summary(),
        "repr": repr(result).splitlines(),
    }


def raised(call: Callable[[], Any]) -> Any:
    """The error of a call and what it was raised from, a line each; where there is none, what the call gives."""
    try:
        return call()
    except BaseException as error:
        seen, lines, how = error, [], ""
        while True:
            retryable = f" (retryable {seen.is_retryable})" if hasattr(seen, "is_retryable") else ""
            lines.append(f"{how}{type(seen).__name__}{retryable}: {without_ids(str(seen))}")
            cause, context = seen.__cause__, None if seen.__suppress_context__ else seen.__context__
            how = "cause: " if cause is not None else "context: "
            if (following := cause or context) is None:
                return lines
            seen = following
