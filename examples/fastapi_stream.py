r"""A web page that shows how an answer is decided: a FastAPI endpoint streams each sample as it comes.

    python examples/fastapi_stream.py                            # the shipped model; then open http://127.0.0.1:8000
    python examples/fastapi_stream.py --model qwen --base-url http://localhost:8001/v1      # vLLM, llama-server, ...
    curl -N http://127.0.0.1:8000/answers \
        --json '{"question": "Lena has 27 old and 14 new cups. How many cups does Lena have now?"}'

It needs FastAPI and a server for it: pip install fastapi uvicorn.

``asolve(..., on_response=f)`` calls ``f`` with each response and the decision after it. Here ``f`` puts them into a
queue, and the endpoint sends them as server-sent events. Three things are worth copying. If a reader leaves, the
samples in flight are cancelled, and nobody pays for them. Readers see only the kind of an error; addresses, prompts and
keys stay in the server's log. At most ``AT_ONCE`` questions run at a time, so that many readers do not overload the
model.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

from any_chat_model import chat_model
from langchain_core.exceptions import ModelError
from pydantic import BaseModel, StringConstraints

from langchain_reasc import ASC, Decision, ReASCRunnable, SampledResponse

try:
    import uvicorn
    from fastapi import FastAPI
    from fastapi.responses import FileResponse
    from fastapi.sse import EventSourceResponse, ServerSentEvent
except ModuleNotFoundError:
    sys.exit(
        "error: this example needs FastAPI (0.135 or newer) and uvicorn: pip install "
        "fastapi uvicorn"
    )

AT_ONCE = 8  # decisions
WANTED = 0.95  # the probability that the leading answer stays ahead
PAGE = Path(__file__).with_name("fastapi_stream.html")
Tell = Callable[[ServerSentEvent], object]
log = logging.getLogger("uvicorn.error")


class Asked(BaseModel):
    """The body of a request."""

    question: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)
    ]


def sampled(
    response: SampledResponse, decision: Decision, reasc: ReASCRunnable
) -> ServerSentEvent:
    """Return an event for a response and the decision after it."""
    shown = {
        "sample": response.index + 1,
        "of": reasc.max_samples,
        "answer": response.answer,
        "weight": response.weight,
        "tokens": response.output_tokens,
        "text": response.message.text if response.message else "",
        "evidence": decision.evidence,
        "posterior": decision.posterior,
        "wanted": WANTED,
    }
    return ServerSentEvent(event="sample", data=shown)


async def decided(
    reasc: ReASCRunnable, question: str, places: asyncio.Semaphore, tell: Tell
) -> None:
    """Answer a question, and send events for each sample and for the result."""

    def on_response(response: SampledResponse, decision: Decision) -> None:
        tell(sampled(response, decision, reasc))

    try:
        if places.locked():
            tell(ServerSentEvent(event="waiting", data={}))
        async with places:
            result = await reasc.asolve(question, on_response=on_response)
        tell(
            ServerSentEvent(
                event="decided", data=result.message.response_metadata["reasc"]
            )
        )
    except Exception as error:
        log.exception("a question could not be answered")
        tell(ServerSentEvent(event="failed", data={"error": type(error).__name__}))


def application(reasc: ReASCRunnable, at_once: int = AT_ONCE) -> FastAPI:
    """Return an application with the page and its endpoint."""
    app = FastAPI(title="ReASC, sample by sample")
    places = asyncio.Semaphore(at_once)
    running: set[asyncio.Task[None]] = set()  # asyncio itself does not hold on to tasks

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE)

    @app.post("/answers", response_class=EventSourceResponse)
    async def answers(asked: Asked) -> AsyncIterator[ServerSentEvent]:
        events: asyncio.Queue[ServerSentEvent] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(
            event: ServerSentEvent,
        ) -> None:  # in another thread, where votes take long to compare
            loop.call_soon_threadsafe(events.put_nowait, event)

        task = asyncio.create_task(decided(reasc, asked.question, places, tell))
        running.add(task)
        task.add_done_callback(running.discard)
        try:
            while (event := await events.get()).event in ("waiting", "sample"):
                yield event
            yield event
        finally:
            # does nothing if it has ended; else the reader has gone, and all samples
            # are cut off
            task.cancel()

    return app


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--model", help="name of a model on the server; default: the shipped model"
    )
    options.add_argument("--base-url", help="of an OpenAI-compatible server")
    options.add_argument("--port", type=int, default=8000)
    given = options.parse_args()
    calibration = None
    if given.model is None:
        from langchain_reasc_llama_cpp import embedded_model_path

        calibration = embedded_model_path().with_name("calibration.json")
    rule = None if calibration else ASC(WANTED)
    model = chat_model(given.model, given.base_url)
    reasc = ReASCRunnable(
        model=model, calibration=calibration, rule=rule, concurrency=2
    )
    server = {"host": "127.0.0.1", "port": given.port, "timeout_graceful_shutdown": 3}
    uvicorn.run(application(reasc), lifespan="off", **server)


if __name__ == "__main__":
    try:
        main()
    except ModelError as error:
        sys.exit(f"error: {error}")
