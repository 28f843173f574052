"""Data sets of the Hugging Face Hub, read where somebody names one as ``hf:...``, and never otherwise.

What is downloaded stays in the cache of ``datasets``, which finds it there the next time, without a network too
(``HF_HUB_OFFLINE=1``). A data set that asks for consent needs ``HF_TOKEN`` in the environment. Code that a data set
brings along is never run.
"""

import importlib
import re
from collections.abc import Iterator
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError, missing_extra

__all__ = ["hub_rows", "is_on_hub"]

_SCHEME: Final = "hf:"
_SPELLING: Final = "hf:OWNER/NAME/SPLIT, or hf:OWNER/NAME:CONFIG/SPLIT"
_NAMED = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)(?::(?P<config>[^/:\s]+))?(?:/(?P<split>\S+))?", re.ASCII)


def is_on_hub(source: str) -> bool:
    """Whether this names a data set of the hub."""
    return source.startswith(_SCHEME)


def address(repository: str) -> str:
    """What ``datasets.load_dataset`` is given for a repository."""
    return repository


def hub_rows(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row, and its place, such as ``hf:OWNER/NAME/test, row 3``.

    Args:
        source: ``hf:OWNER/NAME[:CONFIG][/SPLIT]``. The split may be left out where there is one only, and may be a
            slice of ``datasets``, such as ``test[:100]``.

    Raises:
        ConfigurationError: another spelling, no such data set, config or split, or the hub cannot be reached.
        MissingExtraError: ``datasets`` is not installed.
    """
    named = _NAMED.fullmatch(source)
    if named is None:
        raise ConfigurationError(f"a data set of the hub is named {_SPELLING}; got {source!r}")
    try:
        datasets: Any = importlib.import_module("datasets")
    except ModuleNotFoundError:
        raise missing_extra("data", "datasets") from None
    try:
        loaded = datasets.load_dataset(address(named["repository"]), named["config"], split=named["split"])
    except Exception as error:  # of datasets, of the hub's client, of its HTTP client, of Arrow
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConfigurationError(f"cannot read {source} from the hub: {said:.500}") from error
    for at, row in enumerate(_only_split(loaded, source), 1):
        yield f"{source}, row {at}", row


def _only_split(loaded: Any, source: str) -> Any:
    if not isinstance(loaded, dict):
        return loaded
    if len(loaded) > 1:
        raise ConfigurationError(
            f"{source} has the splits {', '.join(loaded)}; name one: {source}/{next(iter(loaded))}"
        )
    return next(iter(loaded.values()))
