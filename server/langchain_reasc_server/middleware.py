"""ASGI middleware: tidy paths, give request ids back, and refuse pages of other
origins.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.events import Send

_MODEL_SUFFIX: Final = re.compile(
    r"^(/v1/models/.+?)(?::|%3a)reasc(?:-\d+)?$", re.IGNORECASE
)
_ORIGIN: Final = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+")
_REQUEST_ID: Final = b"x-request-id"


class Tidied:
    """Tidies the path of a request, and returns the client's request id if the response
    has no id.

    A slash at the end, or two slashes between a base URL and a path, mean nothing.
    ``MODEL:reasc-8`` is looked up as ``MODEL``.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        raw = scope.get("raw_path") or scope["path"].encode()
        tidied = {
            **scope,
            "path": _tidied(scope["path"]),
            "raw_path": _tidied(raw.decode("latin-1")).encode("latin-1"),
        }
        given = next(
            (value for name, value in scope["headers"] if name == _REQUEST_ID), None
        )

        async def sending(message: Any) -> None:
            if given and message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                if all(name.lower() != _REQUEST_ID for name, _ in headers):
                    message = {**message, "headers": [*headers, (_REQUEST_ID, given)]}
            await send(message)

        await self._app(tidied, receive, sending)


def _tidied(path: str) -> str:
    path = re.sub("/{2,}", "/", path)
    return _MODEL_SUFFIX.sub(r"\1", path.rstrip("/") or "/")


_OWN_HOST: Final = re.compile(
    r"(\[[0-9a-f:.]+\]|[0-9.]+|[^.:]+|.+\.(localhost|local|internal))(:[0-9]+)?",
    re.IGNORECASE,
)
"""An address, or a name that nobody can register. (A hostile site could point its own
name to this server.)
"""


def _is_own_page(origin: str, host: str) -> bool:
    return origin.partition("://")[2] == host and _OWN_HOST.fullmatch(host) is not None


class _BrowserAccess(CORSMiddleware):
    """Lets pages of some origins use the API, but not the status page, and refuses
    requests of all other pages.

    CORS alone lets a page of any site send a request, and only keeps the reply from it.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        of_api = scope["type"] == "http" and scope["path"].startswith(
            ("/v1/", "/reasc/")
        )
        origin, host = (
            Headers(scope=scope).get(name, "") if of_api else ""
            for name in ("origin", "host")
        )
        if (
            of_api
            and origin
            and not self.is_allowed_origin(origin)
            and not _is_own_page(origin, host)
        ):
            said = f"pages of {origin[:200]} may not ask here; an operator lets them by --allow-origin"
            refused = Refused(403, said, code="origin_not_allowed")
            await refused.response(scope, receive, send)
        else:
            answer = super().__call__ if of_api and self.allow_origins else self.app
            await answer(scope, receive, send)


def browser_access(origins: Sequence[str] = ()) -> Middleware:
    """Return the middleware that lets the pages of these origins use the API, and no
    others.

    Raises:
        ConfigurationError: one is not an origin.
    """
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(
                f"--allow-origin is {origin!r}; it takes one such as "
                "https://chat.example.org, or *"
            )
    every: Any = ["*"]
    return Middleware(
        _BrowserAccess,
        allow_origins=[*origins],
        allow_methods=every,
        allow_headers=every,
        expose_headers=every,
    )
