"""Error messages about wrong names and values: one line, with the value and a
suggestion, but never a secret.
"""

import difflib
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import BaseModel, ValidationError

from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

logger = logging.getLogger(__name__)

_OTHER_NAMES: Final = (
    (
        "max_tokens",
        "max_completion_tokens",
        "max_new_tokens",
        "n_predict",
        "num_predict",
        "max_length",
    ),
    ("temperature", "temp"),
    ("repeat_penalty", "repetition_penalty", "penalty_repeat"),
    (
        "repeat_last_n",
        "last_n_tokens_size",
        "penalty_last_n",
        "repetition_penalty_range",
    ),
    ("frequency_penalty", "penalty_freq", "frequence_penalty"),
    ("presence_penalty", "penalty_present"),
    ("typical_p", "typ_p", "typical"),
    ("mirostat", "mirostat_mode"),
    ("mirostat_tau", "mirostat_ent"),
    ("mirostat_eta", "mirostat_lr"),
    ("top_logprobs", "top_logprob", "n_probs", "num_logprobs"),
    ("seed", "random_seed", "random_state"),
    ("n", "max_samples", "num_return_sequences", "n_samples", "num_samples", "best_of"),
    ("stop", "stop_sequences", "stop_words", "stop_strings"),
    ("grammar", "gbnf"),
    ("model_path", "model", "model_name", "model_id", "path", "model_file", "llm"),
    ("base_url", "url", "base", "endpoint", "api_base", "urls", "server"),
    (
        "n_ctx",
        "num_ctx",
        "ctx_size",
        "context_length",
        "context_size",
        "max_seq_len",
        "max_model_len",
    ),
    ("n_batch", "num_batch", "batch_size"),
    ("n_threads", "num_thread", "num_threads", "threads"),
    ("n_gpu_layers", "num_gpu", "gpu_layers", "ngl"),
    ("n_parallel", "parallel", "num_parallel", "max_num_seqs"),
    ("type_k", "cache_type_k", "ctk"),
    ("type_v", "cache_type_v", "ctv"),
    ("flash_attn", "flash_attention", "fa"),
    ("lora", "lora_path", "lora_paths", "lora_adapters", "loras"),
    ("chat_template", "chat_format"),
    ("key_variable", "api_key", "key"),
)
"""Names of the same option in different programs and libraries, our own name first."""
_UNION_MEMBER: Final = re.compile(
    r".*[\[(].*|str|int|float|bool|callable|Escalation|Measure|Online", re.DOTALL
)
"""Names in an error's location that are members of a union, not fields."""
_SECRET: Final = re.compile(
    r"key|headers|secret|passw|authorization|(api|access|auth)_?token"
)
_BE: Final = "Input should be "
_SHOWN: Final = 200


class Checked(BaseModel):
    """A model that raises :class:`ConfigurationError` instead of pydantic's error if
    its options are wrong.
    """

    # type checkers see the signature pydantic makes from the fields
    if not TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None:
            check_names(fields, type(self).model_fields, "option")
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise explained(error) from None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is probably meant: another name of the same option, or
    the most similar one.
    """
    names = list(known)
    same = [candidate for group in _OTHER_NAMES if name in group for candidate in group]
    cutoff = (
        0.8 if same else 0.6
        # an option of another program is no typing error: "temperature" does not mean
        # "measure"
    )
    alike = [
        candidate for candidate in same if candidate in names
    ] or difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return alike[0] if alike else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is probably meant, or list all known names."""
    names = list(known)
    near = nearest(name, names)
    if near is None:
        return f"choose from {', '.join(names)}"
    return f"did you mean {near!r}?"


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that are unknown; ``what`` says what they are.

    Raises:
        ConfigurationError: the message suggests another name.
    """
    names = set(known)
    for name in given:
        if name not in names:
            raise ConfigurationError(
                f"unknown {what} {name!r}; {suggestion(name, sorted(names))}"
            )


_MOST_WARNED: Final = 1024
_warned: set[tuple[str, int]] = set()
_guard = threading.Lock()


def warn_once(text: str, of: int = 0) -> None:
    """Log a warning once per object, however many threads warn at the same time.

    Args:
        text: the warning.
        of: the object's ``id()``; 0 to log once per process.
    """
    with _guard:
        if (text, of) in _warned:
            return
        if len(_warned) >= _MOST_WARNED:
            _warned.clear()
        _warned.add((text, of))
    logger.warning("%s", text)


def forget_warnings() -> None:
    """Log again what was logged once."""
    _warned.clear()


class Repeated:
    """Logs the first warning of each cause, and at the end of the block how many there
    were. Safe in many threads.
    """

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def warn(self, what: str, error: Exception) -> None:
        """Count a warning; ``what`` is its cause, with the error that comes with it
        this time.
        """
        self._counts[what] += 1
        if self._counts[what] == 1:
            logger.warning("%s: %r", what, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for text, count in self._counts.items():
            if count > 1:
                logger.warning(
                    "%s: %d in all, of which the first was shown", text, count
                )


def explained(error: ValidationError) -> ConfigurationError:
    """Convert pydantic's error to a ConfigurationError of one line."""
    return ConfigurationError("; ".join(findings(error)))


def findings(
    error: ValidationError,
    *,
    values: bool = True,
    whole: str = "",
    names: Iterable[str] = (),
) -> list[str]:
    """Describe each finding of pydantic: the place, the problem, and the value unless
    it may be a secret.

    ``whole`` is the name of the validated object. ``names`` are its known names, to
    suggest the nearest to an unknown.
    """
    by_place: dict[str, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        path = takewhile(
            lambda part: not _UNION_MEMBER.fullmatch(str(part)), detail["loc"]
        )
        where = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
        ).lstrip(".")
        by_place.setdefault(where or whole, []).append(detail)
    return [
        _finding(where, several, values, names) for where, several in by_place.items()
    ]


def _finding(
    where: str, errors: "list[ErrorDetails]", values: bool, names: Iterable[str]
) -> str:
    first = errors[0]
    own_error = first.get("ctx", {}).get("error")
    if isinstance(own_error, ConfigurationError):
        return str(own_error)
    if first["type"] == "extra_forbidden":
        hint = f"; {suggestion(str(first['loc'][-1]), names)}" if names else ""
        return f"{where} is unknown{hint}"
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "too_short" and not first["input"]:
        return f"{where} is empty"
    text = _text_of(errors)
    if not where:
        return text
    if not values or _SECRET.search(where):
        return f"{where}: {text}"
    return f"{where}: {text}, got {_shortened(repr(first['input']))}"


def _shortened(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."


def _text_of(errors: "list[ErrorDetails]") -> str:
    messages = [detail["msg"].removeprefix("Value error, ") for detail in errors]
    expected = [
        message.removeprefix(_BE) for message in messages if message.startswith(_BE)
    ]
    return (_BE if expected else "") + " or ".join(dict.fromkeys(expected or messages))


def shortened(text: object, length: int = 60) -> str:
    """Shorten a text to one line of about this length, without control characters."""
    whole = str(text)
    line = repr(" ".join(whole[: 2 * length].split()))[1:-1]
    if len(whole) <= 2 * length and len(line) <= length:
        return line
    return f"{line[:length]}... ({len(whole):,} characters)"
