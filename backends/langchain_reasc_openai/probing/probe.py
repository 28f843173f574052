"""What servers were found to support, remembered in this process and, where asked, in a JSON file."""

import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, SecretStr, ValidationError

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import write_atomically
from langchain_reasc_openai.probing.addresses import base_url
from langchain_reasc_openai.probing.asking import Server
from langchain_reasc_openai.probing.capabilities import Capabilities
from langchain_reasc_openai.probing.questions import ask_everything

__all__ = ["probe", "remembered"]

_known: dict[str, Capabilities] = {}
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
_guard = threading.Lock()


def probe(
    url: str,
    *,
    model: str | None = None,
    api_key: SecretStr | None = None,
    cache: str | Path | None = None,
    refresh: bool = False,
    headers: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    proxy: str | None = None,
    cut_off: bool = False,
) -> Capabilities:
    """What a server supports, found out by asking it once per process (or once per file).

    Args:
        url: the server's base URL; ``/v1`` is added where there is no path.
        model: which of its models; None where it has only one.
        api_key: sent as a bearer token, and kept nowhere.
        cache: a JSON file to look into first, and to write what was found to. It holds no key.
        refresh: whether to ask although the answer is known.
        headers: further HTTP headers.
        timeout: seconds to wait for one answer; the first may have to wait until the model is loaded.
        proxy: the URL of a proxy to ask through.
        cut_off: whether to measure, too, if a stream that is closed stops the server, which takes some seconds and
            makes an idle server generate up to some hundred tokens.

    Raises:
        ServerError: it cannot be reached, refuses the key, or gives no response.
        ConfigurationError: the URL, the model or the file is wrong.
    """
    url = base_url(url)
    name = _name(url, model)
    with _guard:
        asking = _locks[name]
    with asking:  # who comes second waits, and finds the answer
        if not refresh and (found := remembered(url, model=model, cache=cache)):
            return found
        with Server(url, api_key=api_key, headers=headers, timeout=timeout, proxy=proxy) as server:
            found = ask_everything(server, model, cut_off=cut_off)
        _known[name] = found
        if cache is not None:
            _store(Path(cache), name, found)
        return found


def remembered(url: str, *, model: str | None = None, cache: str | Path | None = None) -> Capabilities | None:
    """What was found before; None where nobody asked yet."""
    name = _name(base_url(url), model)
    found = _known.get(name)
    if found is None and cache is not None and (found := _read(Path(cache)).servers.get(name)):
        _known[name] = found
    return found


def _name(url: str, model: str | None) -> str:
    return f"{url} {model}" if model else url


class _File(BaseModel):
    schema_version: Literal[1] = 1
    servers: dict[str, Capabilities] = {}


def _read(path: Path) -> _File:
    """What a file holds; one of another version, or not ours, counts as empty: it is only a memory."""
    try:
        return _File.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return _File()
    except OSError as error:
        raise ConfigurationError(f"cannot read what is known of servers from {path}: {error.strerror}") from None


def _store(path: Path, name: str, found: Capabilities) -> None:
    with _guard:  # or one of two writers would lose the other's entry
        file = _read(path)
        file.servers[name] = found
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, file.model_dump_json(indent=2) + "\n")
        except OSError as error:
            raise ConfigurationError(f"cannot write what is known of servers to {path}: {error.strerror}") from None
