"""The server's routes: read and admit a request, vote on it or pass it through, and
answer in OpenAI's form, or in Anthropic's.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass, field, replace
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from langchain_reasc.models.usage import estimated_tokens
from langchain_reasc_server import messages_request, responses_request
from langchain_reasc_server.calls import Call, Hear
from langchain_reasc_server.chat import FirstResponse, Won, new_head, role_event
from langchain_reasc_server.errors import Refused, RepeatedErrors, refusal_of
from langchain_reasc_server.events import EventStream, Send
from langchain_reasc_server.keys import Admission, Client
from langchain_reasc_server.messages import ErrorsTranslated, MessageWriter
from langchain_reasc_server.metering import Drawn, Meter
from langchain_reasc_server.metrics import Metrics
from langchain_reasc_server.middleware import Tidied, browser_access
from langchain_reasc_server.processes import cut_off_requests
from langchain_reasc_server.reading import Bodies, check_head, read_object
from langchain_reasc_server.responses import ResponseWriter
from langchain_reasc_server.responses_request import Untranslatable
from langchain_reasc_server.solver import Solver, Upstream
from langchain_reasc_server.status import (
    POLICY,
    REMEMBERED,
    Decided,
    headline,
    status_page,
)
from langchain_reasc_server.translated import Translated
from langchain_reasc_server.wire import DONE, PING, Json, encoded, sse

_HELD: Final = 0.5
"""Seconds to delay the head of a stream, so that an upstream's refusal keeps its
status.
"""
_HELD_IF_REFUSED: Final = 6.0
"""Seconds to delay the head if the upstream has refused the request and is asked again.
"""
_READY_FOR: Final = 1.0
"""Seconds for which an upstream's readiness is cached, because asking for it needs no
key.
"""
_METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
_CHAT: Final = "/v1/chat/completions"
_MESSAGES: Final = "/v1/messages"
_PASSED: Final = b"x-reasc-passed-through"


Answer = Callable[[Request, Client, Send], Awaitable[None]]


@dataclass(eq=False)
class Gateway:
    """A server in front of an upstream.

    Attributes:
        upstream: where responses come from.
        solver: votes on requests.
        admission: who may ask, and how much.
        ping: seconds between comments that keep a stream alive during a vote.
        bodies: reads the bodies of requests.
        metrics: what is counted.
        decided: the last votes.
        middleware: further ASGI middleware around the routes.
        lifetime: entered when the server starts, left when it has shut down.
        origins: origins whose web pages may use the API; ``*`` for all.
        paths: paths below ``/v1`` that clients may use besides models, chat
            completions, responses and messages; ``*`` for all.
    """

    upstream: Upstream
    solver: Solver
    admission: Admission = field(default_factory=Admission)
    ping: float = 5.0
    bodies: Bodies = field(default_factory=Bodies)
    metrics: Metrics = field(default_factory=Metrics)
    decided: deque[Decided] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    middleware: Sequence[Middleware] = ()
    lifetime: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    origins: Sequence[str] = ()
    paths: Sequence[str] = ()
    _readiness: asyncio.Task[str | None] | None = None
    _ask_again: float = 0.0
    _failed_models: RepeatedErrors = field(default_factory=RepeatedErrors)

    def __post_init__(self) -> None:
        self._browsers = browser_access(self.origins)

    @property
    def app(self) -> Starlette:
        """The ASGI application."""
        other = _Guarded(self, self._other)
        routes = [
            Route(_CHAT, _Guarded(self, self._chat), methods=["POST"]),
            Route("/v1/responses", _Guarded(self, self._responses), methods=["POST"]),
            Route(
                _MESSAGES,
                ErrorsTranslated(_Guarded(self, self._messages)),
                methods=["POST"],
            ),
            Route(
                _MESSAGES + "/{path:path}", ErrorsTranslated(other), methods=_METHODS
            ),
            Route("/v1/{path:path}", other, methods=_METHODS),
            Route("/reasc/outcome", _Guarded(self, self._outcome), methods=["POST"]),
            Route("/health/live", lambda request: JSONResponse({"status": "live"})),
            Route("/health/ready", self._ready),
            Route("/health", self._ready),
            Route("/metrics", self._metrics),
            Route("/", self._status),
        ]
        handlers: Any = {HTTPException: _no_such_path}
        around = [Middleware(Tidied), *self.middleware, self._browsers]
        app = Starlette(
            routes=routes,
            middleware=around,
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )
        app.router.redirect_slashes = False  # Tidied has removed it already
        return app

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self.lifetime():
            yield
            await cut_off_requests()
            await self.upstream.close()
            await self.solver.close()

    async def _ready(self, request: Request) -> Response:
        if self._readiness is None or time.monotonic() > self._ask_again:
            self._ask_again = time.monotonic() + _READY_FOR
            self._readiness = asyncio.create_task(self.solver.not_ready())
        missing = await asyncio.shield(self._readiness)
        if missing is not None:
            return JSONResponse(
                {"status": f"{missing} does not answer, or does not have the model"},
                503,
            )
        return JSONResponse({"status": "ready"})

    async def _metrics(self, request: Request) -> Response:
        # which may read its file
        learning = await asyncio.to_thread(self.solver.learning)
        if learning is not None:
            self.metrics.record_learning(learning)
        self.metrics.record_health(self.solver.health())
        text, content_type = self.metrics.exposition(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def _status(self, request: Request) -> Response:
        try:
            client = self.admission.client(request.headers)
        except Refused:
            said = "The status page needs a key, as the password."
            return PlainTextResponse(
                said, 401, {"www-authenticate": 'Basic realm="reasc serve"'}
            )
        own = [one for one in self.decided if one.client is client]
        # which may read the file of what was learned
        page = await asyncio.to_thread(self._page, own)
        return HTMLResponse(
            page,
            headers={"cache-control": "no-store", "content-security-policy": POLICY},
        )

    def _page(self, own: Sequence[Decided]) -> str:
        learning = self.solver.progress()
        now = headline(
            self.metrics,
            self.upstream.model,
            self.solver.votes,
            self.solver.health(),
            learning,
        )
        # else anybody may see what anybody has asked
        is_private = bool(self.admission.keys)
        knows = self.solver.knows({one.model for one in own} if is_private else ())
        return status_page(
            self.upstream.model,
            self.metrics,
            own,
            now=now,
            knows=knows,
            answers=is_private,
        )

    async def _other(self, request: Request, client: Client, send: Send) -> None:
        """Pass through a request that is not a chat completion, if the operator has
        opened its path.

        Raises:
            Refused: the path is not open to clients.
        """
        method, path = request.method, str(request.scope["path"])
        reads_models = method in ("GET", "HEAD") and _is_below(path, "models")
        if not (reads_models or any(_is_below(path, one) for one in self.paths)):
            said = f"{method} {path} is not open here; an operator opens more with --allow-path"
            raise Refused(404, said, code="path_not_open")
        body = await self.bodies.read_body(request)
        async with self._until_gone(
            request, client, samples := int(request.method == "POST")
        ):
            self.admission.charge(client, samples=samples)
            await self._forward(
                request, client, body, None, "not a chat completion", send
            )

    async def _chat(self, request: Request, client: Client, send: Send) -> None:
        """Vote on a chat completion, or pass it through."""
        body, call = await self._asked(request)
        await self._complete(call, body, request, client, send)

    async def _messages(self, request: Request, client: Client, send: Send) -> None:
        """Answer a request of Anthropic's Messages API by a chat completion."""
        _, asked = await self._asked(request)
        body = messages_request.chat_request(
            asked.body, await self.upstream.token_limit()
        )
        headers = {
            name: value
            for name, value in asked.headers.items()
            if not name.startswith("anthropic-")
        }
        call = replace(asked, body=body, headers=headers)
        translated = Translated(send, MessageWriter(asked.body, asked.model))
        request.state.call, request.state.translated = call, translated
        chat = _as_chat(request)
        chat.scope["query_string"] = b""  # ?beta=true
        await self._complete(call, encoded(body), chat, client, translated)

    async def _complete(
        self, call: Call, body: bytes, request: Request, client: Client, send: Send
    ) -> None:
        """Vote on a chat completion, or pass it through."""
        why = call.why_not_voted(self.solver.votes)
        if why is None:
            self.bodies.hold_vote(request)
        samples = (
            call.most_samples(self.solver.votes) if why is None else call.responses
        )
        async with self._until_gone(request, client, samples, body):
            if why is None:
                await self._vote(call, request, client, send)
                return
            self.admission.charge(client, samples=call.responses)
            await self._forward(request, client, body, call, why, send)

    async def _responses(self, request: Request, client: Client, send: Send) -> None:
        """Answer a request of the Responses API by a vote on chat completions, or pass
        it through.

        If there is nothing to vote on and the upstream has no Responses API, the
        request becomes one chat completion.
        """
        body, asked = await self._asked(request)
        call: Call | None = None
        try:
            limit = (
                ""
                if asked.body.get("max_output_tokens") is None
                else await self.upstream.token_limit()
            )
            request.state.call = call = replace(
                asked, body=responses_request.chat_request(asked.body, limit)
            )
            why = call.why_not_voted(self.solver.votes)
        except Untranslatable as error:
            why = error.why
        samples = 1
        if call is not None and why is None:
            self.bodies.hold_vote(request)
            samples = call.most_samples(self.solver.votes)
        translated = Translated(send, ResponseWriter(asked.body, asked.model))
        async with self._until_gone(request, client, samples, body):
            if call is not None and why is None:
                request.state.translated = translated
                await self._vote(call, request, client, translated)
                return
            self.admission.charge(client, samples=1)
            if await self._passed_through(
                request, client, body, str(why), send, other_way=call is not None
            ):
                return
            if call is None:
                said = f"{why} is not supported by this model, which only has chat completions; leave it out"
                raise Refused(400, said, code="unsupported_value")
            request.state.translated = translated
            await self._forward(
                _as_chat(request),
                client,
                encoded(call.body),
                call,
                str(why),
                translated,
            )

    async def _forward(
        self,
        request: Request,
        client: Client,
        body: bytes,
        call: Call | None,
        why: str,
        send: Send,
    ) -> None:
        """Pass a request through, and charge its client for the tokens."""
        request.state.way = "pass"
        if self.admission.tokens_per_minute is None or request.method != "POST":
            await self.upstream.forward(request, body, call, why, send)
            return
        meter = Meter(send, body, client.tokens.use)
        try:
            await self.upstream.forward(request, body, call, why, meter)
        except asyncio.CancelledError:
            meter.charge(left=True)
            raise
        finally:
            meter.charge()

    async def _passed_through(
        self,
        request: Request,
        client: Client,
        body: bytes,
        why: str,
        send: Send,
        *,
        other_way: bool,
    ) -> bool:
        """Pass a request through, and return whether the upstream has its path.

        If the request can be answered in no ``other_way``, the client gets the
        upstream's 404, which may be about something that the request refers to.
        """
        missing = False

        async def sending(message: Any) -> None:
            nonlocal missing
            missing = missing or (other_way and message.get("status") in (404, 405))
            if not missing:
                await send(message)

        try:
            await self._forward(request, client, body, None, why, sending)
        except Refused as refused:
            if refused.status != 404:
                raise
            return False
        return not missing

    async def _asked(self, request: Request) -> tuple[bytes, Call]:
        """Read a request in JSON. Return the body to send if it passes through, and the
        call.
        """
        kind = (
            request.headers.get("content-type", "application/json")
            .partition(";")[0]
            .strip()
            .lower()
        )
        if kind != "application/json" and not kind.endswith("+json"):
            raise Refused(
                415, f"a request must be application/json, not {kind}", code="no_json"
            )
        body = await self.bodies.read_body(request)
        call = Call.from_request(
            read_object(body),
            request.headers,
            self.upstream.forwarded_headers(request.headers),
            self.upstream.model,
        )
        request.state.call = (
            call  # for the middleware, as are account, bill and refused
        )
        return encoded(call.body) if call.changed else body, call

    async def _vote(
        self, call: Call, request: Request, client: Client, send: Send
    ) -> None:
        request.state.way = "vote"
        if call.streamed:
            await self._stream(call, request, client, send)
            return
        begun = time.monotonic()
        won = await self._solve(call, client)
        self._record(won, request, client, begun)
        response = Response(
            encoded(won.whole), headers=won.headers, media_type="application/json"
        )
        await response(request.scope, request.receive, send)

    async def _outcome(self, request: Request, client: Client, send: Send) -> None:
        """Record whether an answer was right, as its client reports."""
        request.state.way = "outcome"
        told = read_object(await self.bodies.read_body(request))
        id, correct = told.get("id"), told.get("correct")
        if not (isinstance(id, str) and isinstance(correct, bool)):
            raise Refused(
                400,
                (
                    'an outcome must be {"id": "...", "correct": true or false}, with the '
                    "id in a reply's reasc"
                ),
            )
        if not await self.solver.record_outcome(id, correct):
            raise Refused(
                404, f"no recent answer that was learned from has the id {id!r}"
            )
        await JSONResponse({"recorded": True})(request.scope, request.receive, send)

    async def _stream(
        self, call: Call, request: Request, client: Client, send: Send
    ) -> None:
        """Vote while comments keep the stream alive, and then stream the winner.

        The first event has fields of the first response, so it is sent when that has
        begun.
        """
        begun, events = time.monotonic(), EventStream(send)
        first = FirstResponse(live=call.votes_on_calls_alone(self.solver.votes))
        voting = asyncio.create_task(self._solve(call, client, first.hear))
        voting.add_done_callback(first.wake)
        try:
            arrived = await first.news(_HELD)
            if arrived is None and first.refused:
                arrived = await first.news(_HELD_IF_REFUSED)
            if voting.done():
                events.headers |= voting.result().headers
            head, has_role = new_head(), False
            while True:
                news: list[bytes | Json] = [*call.shown(arrived or (), head)]
                if not has_role and (first.opening is not None or voting.done()):
                    has_role = True
                    news.insert(0, role_event(call, head, first.opening))
                if news or arrived is None:
                    await events.write(*news or [PING])
                if voting.done():
                    break
                arrived = await first.news(self.ping)
            try:
                won = voting.result()
                last = [*won.events(head, first.passed)]
            except Exception as error:
                request.state.refused = refused = refusal_of(error)
                self.metrics.record_error(refused)
                await events.write(refused.body)
            else:
                self._record(won, request, client, begun)
                await events.write(*last, DONE)
            await events.close()
        finally:
            voting.cancel()
            await asyncio.gather(voting, return_exceptions=True)

    async def _solve(
        self, call: Call, client: Client, hear: Hear = lambda events: None
    ) -> Won:
        """Vote, and charge the client, even if the vote fails."""
        drawn = Drawn(hear)
        try:
            won = await self.solver.solve(call, drawn.hear)
        except BaseException as error:
            # a sample was requested, even if nothing came back yet
            left = isinstance(error, asyncio.CancelledError)
            prompt = (
                estimated_tokens(encoded(call.body))
                if self.admission.tokens_per_minute
                else 0
            )
            self.admission.charge(
                client,
                drawn.samples or int(left),
                drawn.tokens(prompt) or prompt * left,
            )
            raise
        account = won.account
        self.admission.charge(client, account["launched"], account["tokens"]["spent"])
        return won

    def _record(self, won: Won, request: Request, client: Client, begun: float) -> None:
        request.state.account = account = won.account
        request.state.bill = won.message.usage_metadata
        self.metrics.record_vote(account, cut_off=won.cut_off)
        self._record_failed_model(won.message.response_metadata["reasc"])
        self.decided.append(
            Decided(
                time.time(), time.monotonic() - begun, won.call.model, account, client
            )
        )

    def _record_failed_model(self, account: Json) -> None:
        """Log and count why one of two models failed, from the whole account of a vote.

        The error's text is not logged, because the server may quote a prompt or a
        response in it.
        """
        model = account.get("failed_model")
        if model is None:
            return
        reason = account["failed_reason"]
        self.metrics.record_model_failure(model, reason)
        self._failed_models.log(
            f"{model} {reason}",
            f"the {model} model failed ({reason}), so the other one answers",
        )

    @asynccontextmanager
    async def _until_gone(
        self, request: Request, client: Client, samples: int = 0, body: bytes = b""
    ) -> AsyncIterator[None]:
        """Admit a request that may draw some samples of a body, and cancel its work
        when the client disconnects.

        Raises:
            ClientDisconnect: the client has disconnected.
        """
        task = asyncio.current_task()
        assert task is not None
        gone = asyncio.create_task(_disconnected(request))
        left = False

        def cancel(_: object) -> None:
            nonlocal left
            if not gone.cancelled() and not request.state.answered:
                left = task.cancel()

        gone.add_done_callback(cancel)
        try:
            with ExitStack() as waiting:
                waiting.enter_context(self.metrics.waiting.track_inprogress())
                tokens = (
                    samples * estimated_tokens(body)
                    if self.admission.tokens_per_minute
                    else 0
                )
                async with self.admission.admit(client, samples, tokens):
                    waiting.close()
                    yield
        except asyncio.CancelledError:
            if left and task.uncancel() == 0:
                raise ClientDisconnect from None
            raise
        finally:
            gone.remove_done_callback(cancel)
            gone.cancel()


class _Guarded:
    """An endpoint that checks the key, writes errors in OpenAI's form, and counts
    requests.
    """

    def __init__(self, gateway: Gateway, answer: Answer) -> None:
        self._gateway, self._answer = gateway, answer

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        request, metrics, begun = (
            Request(scope, receive),
            self._gateway.metrics,
            time.monotonic(),
        )
        status: int | None = None
        silent, is_stream = True, False
        request.state.way, request.state.answered, request.state.translated = (
            "none",
            False,
            None,
        )

        async def sending(message: Any) -> None:
            nonlocal status, silent, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                is_stream = any(
                    b"text/event-stream" in value for _, value in message["headers"]
                )
                if message["status"] >= 400 and any(
                    name == _PASSED for name, _ in message["headers"]
                ):
                    metrics.record_upstream_error(message["status"])
            else:
                if silent and message.get("body"):
                    silent = False
                    metrics.first_byte.labels(request.state.way).observe(
                        time.monotonic() - begun
                    )
                request.state.answered = not message.get("more_body")
            await send(message)

        metrics.running.inc()
        try:
            check_head(scope["headers"])
            request.state.client = client = self._gateway.admission.client(
                request.headers
            )
            await self._answer(request, client, sending)
        except ClientDisconnect:
            request.state.status = status = (
                499  # nginx's, for a client that has closed the request
            )
        except asyncio.CancelledError:
            # the server was stopped; without this, uvicorn would print an error
            stopped = Refused(
                503,
                "the server was stopped",
                code="stopped",
                headers={"retry-after": "1"},
            )
            request.state.refused = stopped
            if status is None:
                await stopped.response(scope, receive, sending)
            elif is_stream and not request.state.answered:
                write = request.state.translated or sending
                await write(
                    {
                        "type": "http.response.body",
                        "body": sse(stopped.body),
                        "more_body": False,
                    }
                )
        except Exception as error:
            request.state.refused = refused = refusal_of(error)
            metrics.record_error(refused)
            if status is None:
                await refused.response(scope, receive, sending)
            elif not request.state.answered:  # the client sees the response break off
                raise ConnectionAbortedError(
                    "a response broke off"
                ) from None  # uvicorn logs this without the error
        finally:
            self._gateway.bodies.release(request)
            metrics.running.dec()
            metrics.requests.labels(request.state.way, str(status)).inc()
            metrics.seconds.labels(request.state.way).observe(time.monotonic() - begun)


def _is_below(path: str, opened: str) -> bool:
    """Return whether a path equals an opened path (``embeddings`` or
    ``/v1/embeddings``) or is below it.
    """
    return opened == "*" or f"{path}/".startswith(
        f"/v1/{opened.strip('/').removeprefix('v1/')}/"
    )


def _as_chat(request: Request) -> Request:
    """Return the request of another API as one for a chat completion."""
    scope = {
        **request.scope,
        "path": _CHAT,
        "raw_path": _CHAT.encode(),
    }
    return Request(scope, request.receive)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    hint = (
        ""
        if request.url.path.startswith(("/v1", "/health"))
        else "; OpenAI's API is below /v1"
    )
    said = (
        f"{request.method} is not allowed here"
        if status == 405
        else f"there is no {request.url.path}{hint}"
    )
    return Refused(status, said).response
