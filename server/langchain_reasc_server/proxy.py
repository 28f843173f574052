"""Serve upstream servers with OpenAI's API: vote on chat completions, and pass
everything else through unchanged.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import aiohttp
import httpx
from langchain_core.messages import AIMessage
from langchain_reasc_openai import ChatOpenAICompatible
from langchain_reasc_openai.client import RAW, RawRequest
from langchain_reasc_openai.transport import body_parts, proxy_to
from starlette.requests import Request
from yarl import URL

from langchain_reasc.agents.chat_model import ChatReASC
from langchain_reasc.exceptions import ServerError, ServerMismatch
from langchain_reasc_server.calls import Call, Hear, messages_of
from langchain_reasc_server.errors import Refused, RepeatedErrors
from langchain_reasc_server.events import Send, start_response
from langchain_reasc_server.wire import sse

_repeated: Final = RepeatedErrors()
_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
    }
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
_NOT_SENT: Final = _HOP_BY_HOP | {
    "host",
    "content-length",
    "expect",
    "accept-encoding",
    "authorization",
    "x-api-key",
    "api-key",
    "cookie",
}
_NOT_GIVEN_BACK: Final = _HOP_BY_HOP | {"date", "server"}
_OF_ONE: Final = ("content-type", "accept", "idempotency-key", "x-stainless-")
"""Headers about the request's own body or the client's library, which do not apply to
our requests.
"""
_VOTE_FIELDS: Final = (
    "tools",
    "tool_choice",
    "response_format",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "presence_penalty",
    "frequency_penalty",
)
"""Fields of a request that its votes, limits and calibration depend on."""
_OF_SMALLER: Final = ("temperature", "top_p", "top_k", "min_p")
"""Fields that spread the samples of a vote. A larger model is asked once, and some
refuse them.
"""
_ALTERNATIVES: Final = 20
"""As many as ReASC asks for where a calibration may read them, so that a client's wish
changes no measure.
"""
_BUSY: Final = (429, 502, 503, 504)
_CONNECTED_WITHIN: Final = 10.0  # seconds
_READY_WITHIN: Final = 5.0
_KEPT_ALIVE: Final = 4.0
"""Seconds that an idle connection is kept: less than servers do, which may close it
while a request is on its way.
"""
_LONGEST_HEADER: Final = 65_536  # bytes
_FILLED_IN: Final = ("user-agent", "accept", "content-type")
"""Headers that aiohttp fills in if a request has none."""
_LARGEST_REPLY: Final = 256 << 20  # bytes, of those that are kept until their end
_Answer = tuple[aiohttp.ClientResponse, bytes | None]


class LargerServers(ChatOpenAICompatible):
    """The servers of a larger model. They get the request that was written for the
    smaller one, adapted.

    Attributes:
        pass_keys: whether they get the client's own key.
    """

    pass_keys: bool = False

    def _request(
        self, server: Any, overrides: dict[str, Any], stop: list[str] | None
    ) -> dict[str, Any]:
        raw: RawRequest = overrides[RAW]
        body = dict(raw.body)
        for name in _OF_SMALLER:
            body.pop(name, None)
        body["model"] = self.model_name
        limit = body.pop("max_tokens", None)
        if limit is not None:
            body.setdefault(server.max_tokens, limit)
        headers = dict(raw.headers)
        if not self.pass_keys:
            key: Any = self.openai_api_key
            headers["Authorization"] = f"Bearer {key.get_secret_value()}"
        adapted = replace(raw, body=body, headers=headers)
        return super()._request(server, {**overrides, RAW: adapted}, stop)


class Servers:
    """One or several OpenAI-compatible servers.

    Attributes:
        chat_model: the model to sample.
        model: the model's name.
    """

    def __init__(
        self,
        chat_model: ChatOpenAICompatible,
        *,
        pass_keys: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Create the upstream without connecting.

        Args:
            chat_model: has the addresses of the servers, their model and their key.
            pass_keys: whether each client's own key is sent instead of the operator's.
            timeout: seconds that a server may be silent while a request is passed
                through.
        """
        self.chat_model = chat_model
        self.model = chat_model.model_name
        self._pass_keys = pass_keys
        self._timeout = timeout
        self._key = chat_model.openai_api_key.get_secret_value()  # type: ignore[union-attr]
        self._running: Counter[str] = Counter()
        self._proxies = {
            server.url: proxy_to(server.url) for server in chat_model.status()
        }

    @cached_property
    def _client(self) -> aiohttp.ClientSession:
        """The HTTP client for requests that pass through, made in the event loop (httpx
        takes three times as long).
        """
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_KEPT_ALIVE, ssl=httpx.create_ssl_context()
            ),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=_CONNECTED_WITHIN, sock_read=self._timeout
            ),
            # Cookies are of one client, and not of all.
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_FILLED_IN,
            auto_decompress=False,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
        )

    def forwarded_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a client's request for the upstream, including the key.

        Raises:
            Refused: clients have to send their own keys, and the request has none.
        """
        named = {
            name.strip().lower() for name in headers.get("connection", "").split(",")
        }
        forwarded: dict[str, str] = {}
        for name, value in headers.items():
            is_ours = name in _NOT_SENT or name.startswith("x-reasc-")
            if not is_ours and name not in named:
                forwarded[name] = value if value.isascii() else _unicode(value)
        key = f"Bearer {self._key}"
        if self._pass_keys:
            key = headers.get("authorization", "")
            if not key and (given := headers.get("x-api-key")):
                key = f"Bearer {given}"
        if not key:
            raise Refused(
                401,
                "an API key is needed: Authorization: Bearer KEY",
                code="invalid_api_key",
            )
        return {**forwarded, "authorization": key, "accept-encoding": "identity"}

    def is_own(self, model: str) -> bool:
        """Return whether this is the operator's model. Servers may have other models
        too.
        """
        return model in ("", self.model)

    async def solve(
        self, solver: ChatReASC, call: Call, hear: Hear, limit: int | None
    ) -> AIMessage:
        """Return the winner of a vote. Each sample is the client's own request."""
        body = {name: value for name, value in call.body.items() if name != "n"}
        headers: dict[str, str] = {}
        for name, value in call.headers.items():
            # OpenAI's client sends no other than ASCII.
            if not name.startswith(_OF_ONE) and value.isascii():
                headers[name.title()] = value
        arguments: dict[str, Any] = {RAW: RawRequest(body, headers, hear)}
        for name in _VOTE_FIELDS:
            if call.body.get(name) is not None:
                arguments[name] = call.body[name]
        if call.body.get("logprobs"):
            arguments["logprobs"] = True
            alternatives = call.body.get("top_logprobs")
            if solver.online is not None:
                # Learning reads the chosen tokens. Some servers take 0 for no logprobs.
                alternatives = max(1, alternatives or 0)
            elif solver.calibration is not None:
                alternatives = _ALTERNATIVES
            if alternatives is not None:
                arguments["top_logprobs"] = alternatives
        return await solver.ainvoke(
            messages_of(call.body), {"max_concurrency": limit}, **arguments
        )

    async def forward(
        self, request: Request, body: bytes, call: Call | None, why: str, send: Send
    ) -> None:
        """Pass a request to the upstream and its response to the client, both
        unchanged.

        Raises:
            Refused: no server can be reached, or the response breaks off (a stream then
                ends with an error event).
        """
        async with self._response(request, body, call) as (response, whole):
            if not 200 <= response.status < 600:
                raise Refused(
                    502,
                    f"the upstream answers with status {response.status}",
                    code="upstream_error",
                )
            if "location" in response.headers and 300 <= response.status < 400:
                # A client that follows it sends its key, and is told an address that
                # may be internal.
                said = f"the upstream redirects {request.url.path}"
                where = f"{said} to {response.headers['location']}"
                _repeated.log(
                    where,
                    f"{where}; if that is the upstream, give its address as --url",
                )
                raise Refused(502, said, code="upstream_error")
            headers: list[tuple[str, str]] = []
            for name, value in response.headers.items():
                if _is_given_back(name.lower()):
                    headers.append((name.lower(), value))
            headers.append(("x-reasc-passed-through", why))
            if whole is not None:
                await self._give_back_whole(response.status, whole, headers, send)
                return
            if _is_stream(response):
                # Otherwise nginx holds events back.
                headers.append(("x-accel-buffering", "no"))
            await start_response(send, response.status, headers)
            try:
                async for part in body_parts(response):
                    await send(
                        {"type": "http.response.body", "body": part, "more_body": True}
                    )
            except aiohttp.ClientError as error:
                request.state.refused = broken = _broken(
                    error, "the upstream broke the stream off"
                )
                if _is_stream(response):
                    await send(
                        {
                            "type": "http.response.body",
                            "body": sse(broken.body),
                            "more_body": False,
                        }
                    )
                raise broken from None
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    @asynccontextmanager
    async def _response(
        self, request: Request, body: bytes, call: Call | None
    ) -> AsyncIterator[_Answer]:
        """Yield the response of the first server that answers, and its body if it was
        already read.

        A server that cannot be reached is skipped. For a chat completion, which can be
        repeated, so is a server that is busy, or that breaks off before the client has
        received anything.
        """
        raw_path: bytes = request.scope.get("raw_path", request.url.path.encode())
        path = raw_path.decode("ascii", "replace").partition("?")[0]
        # An escape of an escape would be decoded by the upstream.
        if "/.." in unquote(unquote(path)).replace("\\", "/"):
            raise Refused(404, f"there is no {path}")
        rest = path.removeprefix("/v1")
        if request.url.query:
            rest += f"?{request.url.query}"
        if call is None:
            headers = self.forwarded_headers(request.headers)
        else:
            headers = dict(call.headers)
        urls = self._servers_by_load()
        failed = Refused(502, "no upstream is reached", code="unreachable")
        for left, url in zip(reversed(range(len(urls))), urls, strict=True):
            options: Any = {
                "headers": headers,
                "data": body or None,
                "proxy": self._proxies[url],
            }
            target = URL(url + rest, encoded=True)
            sent = self._client.request(
                request.method, target, allow_redirects=False, **options
            )
            self._running[url] += 1
            try:
                answer = await self._sent(sent, call)
                if isinstance(answer, Refused):
                    failed = answer
                    continue
                response, _ = answer
                try:
                    if call is None or not left or response.status not in _BUSY:
                        yield answer
                        return
                finally:
                    response.close()
            finally:
                self._running[url] -= 1
        raise failed

    async def _sent(
        self, sent: Awaitable[aiohttp.ClientResponse], call: Call | None
    ) -> _Answer | Refused:
        """Return a response, with its body if the client gets it in one piece, or the
        reason to ask another server.
        """
        try:
            response = await sent
            try:
                is_whole = response.status >= 400 or (
                    call is not None and not call.streamed
                )
                whole = await _read_body(response) if is_whole else None
            except BaseException:
                response.close()
                raise
        except aiohttp.ClientError as error:
            if call is not None or isinstance(
                error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            ):
                return _broken(error, "no upstream is reached", "unreachable")
            raise _broken(error, "the upstream broke the connection off") from None
        return response, whole

    def _servers_by_load(self) -> Sequence[str]:
        def load(server: Any) -> tuple[bool, int, float]:
            running = server.in_flight + self._running[server.url]
            # Equally busy servers take turns by chance.
            return not server.healthy, running, random.random()

        return [server.url for server in sorted(self.chat_model.status(), key=load)]

    async def _give_back_whole(
        self, status: int, body: bytes, headers: list[tuple[str, str]], send: Send
    ) -> None:
        """Send a whole response to the client. Hide the operator's key, which a server
        may quote in an error.
        """
        if status >= 400 and not self._pass_keys and len(self._key) > 8:
            if any(
                name == "content-encoding" and value.lower() != "identity"
                for name, value in headers
            ):
                # The key cannot be found in them.
                said = f"the upstream refuses it with {status}, in words that are compressed"
                raise Refused(502, said, code="upstream_error")
            body = body.replace(self._key.encode(), b"***")
        headers = [header for header in headers if header[0] != "content-length"]
        headers.append(("content-length", str(len(body))))
        await start_response(send, status, headers)
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def token_limit(self) -> str:
        """Return the servers' name for the option that limits tokens, asking the
        servers if necessary.
        """
        return (await self.chat_model.acapabilities()).max_tokens

    async def ready(self) -> bool:
        """Return whether one of the servers answers, and no server says that it does
        not have the model.
        """
        for url in self._servers_by_load():
            options: Any = {
                "headers": {"authorization": f"Bearer {self._key}"},
                "proxy": self._proxies[url],
            }
            with suppress(aiohttp.ClientError, TimeoutError):
                async with (
                    asyncio.timeout(_READY_WITHIN),
                    self._client.get(
                        f"{url}/models", allow_redirects=False, **options
                    ) as answer,
                ):
                    if answer.status < 300 or 400 <= answer.status < 500:
                        return await self._may_have_model()
        return False

    async def _may_have_model(self) -> bool:
        try:
            async with asyncio.timeout(_READY_WITHIN):
                await self.chat_model.acapabilities()
        except ServerMismatch as error:
            _repeated.log(str(error), f"not ready: {error}")
            return False
        except (ServerError, TimeoutError):
            # A busy server answers another time.
            return True
        return True

    def health(self) -> dict[str, bool]:
        """Return server -> whether it is healthy."""
        return {server.url: server.healthy for server in self.chat_model.status()}

    async def close(self) -> None:
        """Close the connections of requests that pass through. The caller owns the chat
        model's connections.
        """
        await self._client.close()


def _is_given_back(name: str) -> bool:
    """Return whether the client gets a header. This server sets CORS headers itself."""
    return name not in _NOT_GIVEN_BACK and not name.startswith("access-control-")


def _unicode(value: str) -> str:
    """Decode a header as UTF-8 if possible. It was read as Latin-1, and will be sent as
    UTF-8.
    """
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """Read a body without decompressing it, because a compressed body could become very
    large.

    Raises:
        Refused: the body is too large.
    """
    body = bytearray()
    async for part in body_parts(response):
        body += part
        if len(body) > _LARGEST_REPLY:
            said = f"the upstream's reply has more than {_LARGEST_REPLY >> 20} MiB"
            raise Refused(502, said, code="upstream_error")
    return bytes(body)


def _broken(
    error: aiohttp.ClientError, said: str, code: str = "upstream_error"
) -> Refused:
    """Build the error for an upstream that broke off, or was silent for too long."""
    if isinstance(error, aiohttp.SocketTimeoutError):
        return Refused(504, "no answer in time", code="timeout")
    return Refused(502, said, code=code)


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    return "text/event-stream" in response.headers.get("content-type", "")


def only_model(url: str, key: Any, timeout: float) -> str | None:
    """Return the name of a server's model if it has only one."""
    from langchain_reasc_openai.server import Server, base_url

    with Server(base_url(url), api_key=key, timeout=timeout) as server:
        rows = server.get("/models").rows("data")
    return str(rows[0]["id"]) if len(rows) == 1 and "id" in rows[0] else None
