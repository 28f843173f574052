"""ASGI middleware: tidy paths, and refuse requests of web pages from other origins."""

import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.events import Send

__all__ = ["Tidied", "browser_access"]

_ORIGIN: Final = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+")


class Tidied:
    """Removes doubled slashes and the slash at the end from the path of a request."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            raw = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
            scope = {**scope, "path": _tidied(scope["path"]), "raw_path": _tidied(raw).encode("latin-1")}
        await self._app(scope, receive, send)


def _tidied(path: str) -> str:
    return re.sub("/{2,}", "/", path).rstrip("/") or "/"


class _BrowserAccess(CORSMiddleware):
    """Lets pages of some origins use the API, but not the status page, and refuses requests of all other pages.

    CORS alone lets a page of any site send a request, and only keeps the reply from it.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(("/v1/", "/reasc/")):
            await self.app(scope, receive, send)
            return
        origin = Headers(scope=scope).get("origin")
        if origin and not self.is_allowed_origin(origin):
            said = f"web pages of {origin[:200]} may not use this server; the operator can allow them by --allow-origin"
            await Refused(403, said, code="origin_not_allowed").response(scope, receive, send)
        else:
            answer = super().__call__ if self.allow_origins else self.app
            await answer(scope, receive, send)


def browser_access(origins: Sequence[str] = ()) -> Middleware:
    """Return the middleware that lets web pages of these origins use the API, and no others.

    Raises:
        ConfigurationError: one of them is not an origin.
    """
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(
                f"--allow-origin is {origin!r}; it takes one such as https://chat.example.org, or *"
            )
    every: Any = ["*"]
    return Middleware(
        _BrowserAccess, allow_origins=[*origins], allow_methods=every, allow_headers=every, expose_headers=every
    )
