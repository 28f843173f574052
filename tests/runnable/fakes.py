"""A scripted chat model: what each sample of each question says, when, and with which logprobs."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, count, repeat
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.outputs.chat_generation import merge_chat_generation_chunks
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from langchain_reasc import ASC
from langchain_reasc.calibration import Calibration, Gate
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.models.fingerprint import Fingerprint

TOP_K = Measure("top_k", "mean")
PROMPT_TOKENS = 7
TIMEOUT = 60
CONFIG: ContextVar[RunnableConfig] = ContextVar("CONFIG")  # of the running call


@dataclass
class Reply:
    """One sample: its words are its tokens, and its calls of tools, (name, arguments) each, come after them.

    ``opens`` is waited for before token ``wait_at``; ``done`` is set at the end; ``logprob`` is every token's (None: no
    logprobs), unless ``told`` gives what is told of the token at a place; an endless reply says its last word for ever;
    ``error`` is raised after the words. After ``stall_at`` chunks ``done`` is set, and nothing comes any more until the
    stream is closed; each chunk takes ``delay`` seconds. ``usage`` is told as it stands (True: what was counted; False:
    nothing; "split": the prompt's in the first chunk, the rest in the last, as Anthropic does), and ``metadata`` beside
    what every response says of itself.
    """

    text: str = "the answer is 42"
    logprob: float | None = -0.1
    told: Callable[[int, str], dict[str, Any] | None] | None = None
    usage: bool | str | dict[str, Any] = True
    error: Exception | None = None
    endless: bool = False
    opens: threading.Event | None = None
    wait_at: int = 0
    done: threading.Event | None = None
    stall_at: int | None = None
    delay: float = 0.0
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    def tokens(self) -> Iterator[str]:
        words = self.text.split()
        yield from (word if at == 0 else f" {word}" for at, word in enumerate(words))
        yield from (f" {words[-1]}" for _ in (count() if self.endless else ()))

    @property
    def stalls(self) -> Iterator[float]:
        """Seconds until each chunk that says nothing: one at once, and the next when the others have decided."""
        return chain((0.002,), repeat(0.3))

    def end(self) -> None:
        if self.done:
            self.done.set()

    def logprobs(self, at: int, token: str) -> dict[str, Any] | None:
        if self.told:
            return self.told(at, token)
        return None if self.logprob is None else openai_token(token, self.logprob)


@dataclass
class Log:
    """What was asked of a model and all its copies."""

    calls: list[tuple[str, int]] = field(default_factory=list)
    kwargs: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[list[BaseMessage]] = field(default_factory=list)
    configs: list[RunnableConfig] = field(default_factory=list)
    tokens: Counter[tuple[str, int]] = field(default_factory=Counter)
    live: int = 0
    most_live: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def __reduce__(self) -> Any:
        return Log, ()

    @contextmanager
    def call(self, key: tuple[str, int], kwargs: dict[str, Any]) -> Iterator[None]:
        with self.lock:
            self.calls.append(key)
            self.kwargs.append(kwargs)
            self.live += 1
            self.most_live = max(self.most_live, self.live)
        try:
            yield
        finally:
            with self.lock:
                self.live -= 1


Script = Callable[[str, int], Reply]


class Scripted(BaseChatModel):
    """Replies as ``script(question, sample index)`` says; the index is read from the tag its run carries."""

    script: Any
    model_name: str = "scripted"
    temperature: float | None = 1.0
    seed: int | None = None
    log: Any = Field(default_factory=Log)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def stream(self, input: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:
        CONFIG.set(config or {})
        yield from super().stream(input, config, **kwargs)

    async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        CONFIG.set(config or {})
        async with aclosing(super().astream(input, config, **kwargs)) as chunks:
            async for chunk in chunks:
                yield chunk

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        CONFIG.set(config or {})
        return super().invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        CONFIG.set(config or {})
        return await super().ainvoke(input, config, **kwargs)

    def _begin(self, messages: list[BaseMessage]) -> tuple[Reply, tuple[str, int]]:
        self.log.prompts.append(messages)
        self.log.configs.append(CONFIG.get())
        tags = [tag for tag in CONFIG.get().get("tags") or [] if tag.startswith("reasc:sample:")]
        key = str(messages[-1].content), int(tags[-1].rpartition(":")[2]) if tags else 0
        return self.script(*key), key

    def _chunk(self, reply: Reply, token: str, key: tuple[str, int]) -> ChatGenerationChunk:
        told = reply.logprobs(self.log.tokens[key], token)
        self.log.tokens[key] += 1
        info = {} if told is None else {"logprobs": {"content": [told]}}
        return ChatGenerationChunk(message=AIMessageChunk(content=token, response_metadata=info))

    def _calls(self, reply: Reply, key: tuple[str, int]) -> Iterator[ChatGenerationChunk]:
        for at, (name, arguments) in enumerate(reply.calls):
            self.log.tokens[key] += 1
            call = tool_call_chunk(name=name, args=json.dumps(arguments), id=f"call-{key[1]}-{at}", index=at)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))

    def _chunks(self, reply: Reply, key: tuple[str, int]) -> Iterator[ChatGenerationChunk]:
        """All that comes before the last."""
        if reply.usage == "split":
            yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=usage_of(PROMPT_TOKENS, 0)))
        for token in reply.tokens():
            yield self._chunk(reply, token, key)
        yield from self._calls(reply, key)

    def _last(self, reply: Reply, output: int) -> ChatGenerationChunk:
        if reply.error:
            raise reply.error
        usage: Any = usage_of(0 if reply.usage == "split" else PROMPT_TOKENS, output)
        message = AIMessageChunk(
            content="",
            usage_metadata=usage if reply.usage in (True, "split") else reply.usage or None,
            response_metadata={"finish_reason": "stop", "model_name": self.model_name, **reply.metadata},
        )
        return ChatGenerationChunk(message=message)

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        reply, key = self._begin(messages)
        with self.log.call(key, kwargs | {"stop": stop}):
            before = self.log.tokens[key]
            for at, chunk in enumerate(self._chunks(reply, key)):
                if reply.opens and at == reply.wait_at:
                    assert reply.opens.wait(TIMEOUT), f"sample {key} was never let go"
                for pause in reply.stalls if at == reply.stall_at else ():
                    reply.end()
                    time.sleep(pause)
                    yield ChatGenerationChunk(message=AIMessageChunk(content=""))
                if reply.delay:
                    time.sleep(reply.delay)
                yield chunk
            yield self._last(reply, self.log.tokens[key] - before)
        reply.end()

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply, key = self._begin(messages)
        with self.log.call(key, kwargs | {"stop": stop}):
            before = self.log.tokens[key]
            for at, chunk in enumerate(self._chunks(reply, key)):
                await asyncio.sleep(reply.delay)
                if reply.opens and at == reply.wait_at:
                    async with asyncio.timeout(TIMEOUT):
                        while not reply.opens.is_set():
                            await asyncio.sleep(0.001)
                for pause in reply.stalls if at == reply.stall_at else ():
                    reply.end()
                    await asyncio.sleep(pause)
                    yield ChatGenerationChunk(message=AIMessageChunk(content=""))
                yield chunk
            yield self._last(reply, self.log.tokens[key] - before)
        reply.end()

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        whole = merge_chat_generation_chunks(list(self._stream(messages, stop=stop, run_manager=run_manager, **kwargs)))
        return ChatResult(generations=[whole])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        chunks = [chunk async for chunk in self._astream(messages, stop=stop, run_manager=run_manager, **kwargs)]
        return ChatResult(generations=[merge_chat_generation_chunks(chunks)])


def usage_of(given: int, generated: int) -> Any:
    return {"input_tokens": given, "output_tokens": generated, "total_tokens": given + generated}


def openai_token(token: str, logprob: float, k: int = 2) -> dict[str, Any]:
    """A token in the shape of OpenAI's chat API, all k alternatives as likely as itself: top_k is -logprob."""
    return {
        "token": token,
        "logprob": logprob,
        "bytes": None,
        "top_logprobs": [{"token": token, "logprob": logprob, "bytes": None} for _ in range(k)],
    }


def saying(*answers: str | Reply) -> Scripted:
    """A model whose sample i gives ``answers[i]`` (the last one for all beyond)."""
    replies = [one if isinstance(one, Reply) else Reply(f"the answer is {one}") for one in answers]
    return Scripted(script=lambda question, index: replies[min(index, len(replies) - 1)])


def failing(script: Script, when: Callable[[str, int], bool], error: Exception | None = None) -> Scripted:
    """A model that replies as ``script`` says, and fails on the samples of which ``when`` holds."""
    down = Reply("", error=error or ConnectionError("down"))
    return Scripted(script=lambda question, index: down if when(question, index) else script(question, index))


@dataclass(frozen=True)
class Unforeseen(ASC):
    """ASC that no made-up answer stops: what decides is not foreseen, so that more samples are launched than needed."""

    first_wave = None

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = super().__call__(responses)
        return decision if decision.answer else replace(decision, stop=False)


def calibration(*, mean: float = 1.0, gate: float | None = None, **fields: Any) -> Calibration:
    """A calibration over the top_k signal; z-scores have σ = 1. A Reply's S(y) is minus its logprob."""
    closed = None if gate is not None else "closed by the test"
    return Calibration(
        **{
            "schema_version": 3,
            "method": "offline",
            "signal": "top_k",
            "score": "mean",
            "window": 128,
            "n": 64,
            "mean": mean,
            "std": 1.0,
            "gate": Gate(threshold=gate, closed_because=closed),
            "library_version": "test",
            "created_at": datetime.now(UTC),
            "fingerprint": Fingerprint(model="scripted", sampling={"temperature": 1.0}),
            **fields,
        }
    )
