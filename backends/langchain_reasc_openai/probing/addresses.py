"""Base URLs as users write them, brought into one form."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["base_url", "base_urls", "root_of", "without_secrets"]


def base_url(given: str) -> str:
    """The address of the API: without a slash at the end, and with ``/v1`` where no path was given.

    Raises:
        ConfigurationError: it is no http(s) address, or holds a password or a query.
    """
    url = given.strip().rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"a base URL looks like http://localhost:8000/v1, got {without_secrets(given)!r}")
    if parts.username or parts.password:
        raise ConfigurationError(
            f"the base URL {without_secrets(given)!r} holds a user name or password, which would be shown; "
            "give a key as api_key"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(
            f"the base URL {without_secrets(given)!r} ends in a query or fragment; put a query into default_query"
        )
    return url if parts.path else f"{url}/v1"


def base_urls(given: str | Sequence[str]) -> tuple[str, ...]:
    """One or several addresses, each once.

    Raises:
        ConfigurationError: there is none, or one is wrong.
    """
    urls = tuple(dict.fromkeys(base_url(one) for one in ([given] if isinstance(given, str) else given)))
    if not urls:
        raise ConfigurationError("base_url is an empty list; give the address of at least one server")
    return urls


def root_of(url: str) -> str:
    """The server's own address, where its native API lies beside ``/v1``."""
    return url.removesuffix("/v1")


def without_secrets(given: str) -> str:
    """An address as it may be shown: without user name, password and query, where secrets can be."""
    scheme, mark, rest = given.rpartition("://")
    return (scheme + mark + rest.rpartition("@")[2]).partition("?")[0].rstrip("/")
