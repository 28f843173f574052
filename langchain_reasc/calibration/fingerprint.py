"""What a calibration holds for: the model, its sampling and what it is asked, and the refusal of anything else."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_reasc.calibration.asked import (
    FixedPrompt,
    answer_name,
    confidence_part,
    fixed_prompt,
    grammar_part,
    response_format_part,
    stop_part,
    tools_part,
)
from langchain_reasc.calibration.schema import Calibration, Fingerprint, HashedPart
from langchain_reasc.exceptions import FingerprintMismatch
from langchain_reasc.untrusted import parse_json

__all__ = ["check_fingerprint", "check_made_of", "fingerprint_of", "prompt_hash"]

_SHOWN: Final = {
    "prompt_sha256": "prompt_sha256 of the system messages",
    "prompt": "fixed part of the prompt",
    "response_format": "response format",
    "stop": "stop strings",
    "ask_confidence": "stated confidence (ask_confidence)",
}
_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "max_tokens")
_ASKED: Final = ("tools", "tool_choice", "response_format", "grammar", "stop")
_SHA256_HEX: Final = 64


def fingerprint_of(
    model: BaseChatModel,
    *,
    kwargs: Mapping[str, Any] | None = None,
    messages: Sequence[BaseMessage] | None = None,
    prompt: FixedPrompt | None = None,
    answer: Any = None,
) -> Fingerprint:
    """The fingerprint of a chat model, of the arguments bound to it, and of what it is asked besides a question.

    A model that knows more of itself than its name offers ``calibration_fingerprint(**kwargs)``, as our llama.cpp model
    does (file hash, quantisation).

    Args:
        model: the chat model.
        kwargs: arguments of its calls. Tools, response format, grammar and stop strings count wherever they stand.
        messages: the messages of a call, of which the system messages are compared; a conversation's other messages
            are never part of it.
        prompt: which part of a prompt is fixed, see :func:`~langchain_reasc.calibration.asked.fixed_prompt`.
        answer: where the answer is in a response. It counts by name; the library's version says by which rules.

    Raises:
        ConfigurationError: ``prompt`` cannot be read.
    """
    bound = dict(kwargs or {})
    asked = {name: _given(model, bound, name) for name in _ASKED}
    rest = {name: value for name, value in bound.items() if name not in _ASKED}
    own = getattr(model, "calibration_fingerprint", None)
    described = {
        "prompt_sha256": None if messages is None else prompt_hash(messages),
        "prompt": fixed_prompt(prompt, messages),
        "tools": tools_part(asked["tools"], asked["tool_choice"]),
        "response_format": response_format_part(asked["response_format"]),
        "grammar": grammar_part(asked["grammar"]),
        "stop": stop_part(asked["stop"]),
        "answer": None if answer is None else answer_name(answer),
        **(_by_name(model, rest) if own is None else own(**rest)),
    }
    sampling = {name: _scalar(value) for name, value in described.pop("sampling", {}).items()}
    return Fingerprint(**described, sampling=sampling)


def prompt_hash(messages: Sequence[BaseMessage]) -> str:
    """SHA-256 of the system messages: the part of a prompt that does not change from question to question."""
    fixed = "\n".join(str(message.content) for message in messages if message.type == "system")
    return hashlib.sha256(fixed.encode()).hexdigest()


class Measured(Protocol):
    """What was measured on something."""

    @property
    def fingerprint(self) -> Fingerprint: ...


def check_fingerprint(calibration: Measured, running: Fingerprint) -> None:
    """Refuse a calibration that was measured on something else than what runs.

    Fields unknown on either side are not compared.

    Raises:
        FingerprintMismatch: naming each differing field with both its values, and the override.
    """
    _refuse(_differences(calibration.fingerprint, running))


def check_made_of(
    calibration: Calibration, *, carried: Collection[str], top_k: int | None, vocabulary_size: int | None
) -> None:
    """Refuse a calibration whose scores were made of something else than what a response carries.

    Args:
        calibration: the calibration, made of one signal over k alternatives or a vocabulary of V.
        carried: names of the signals that such responses can carry.
        top_k: the response's k behind the calibration's signal; what is unknown on either side is not compared.
        vocabulary_size: the response's V.

    Raises:
        FingerprintMismatch: another signal, k or V, with both sides and the override.
    """
    signal = calibration.signal
    if signal not in carried:
        _refuse([("token signal", signal, ", ".join(carried))])
    pairs = [
        (f"alternatives per token behind {signal!r} (k)", calibration.top_k, top_k),
        ("vocabulary size (V)", calibration.vocabulary_size, vocabulary_size),
    ]
    _refuse([(name, then, now) for name, then, now in pairs if then is not None and now is not None and then != now])


def _refuse(differing: Sequence[tuple[str, object, object]]) -> None:
    if not differing:
        return
    sides = "; ".join(
        f"{_SHOWN.get(name, name)}: calibrated on {_side(then)}, running {_side(now)}" for name, then, now in differing
    )
    raise FingerprintMismatch(
        f"the calibration does not fit what runs ({sides}). Calibrate again with `reasc calibrate`, or override "
        "with allow_fingerprint_mismatch=True"
    )


def _differences(then: Fingerprint, now: Fingerprint) -> list[tuple[str, object, object]]:
    hashed = bool(then.model_sha256 and now.model_sha256)
    fields = [
        "model_sha256" if hashed else "model",  # a renamed file is the same model
        "quantization",
        "prompt" if then.prompt and now.prompt else "prompt_sha256",  # which says less
        *("tools", "response_format", "grammar", "answer"),
    ]
    pairs: list[tuple[str, object, object]] = [(name, getattr(then, name), getattr(now, name)) for name in fields]
    pairs.append(("stop", _stop(then), _stop(now)))
    not_asked = confidence_part(None)  # as whatever says nothing of it
    pairs.append(("ask_confidence", then.ask_confidence or not_asked, now.ask_confidence or not_asked))
    # Who hashes its file tells everything that matters; what it leaves out has no effect.
    unsaid = "no effect" if hashed else None
    names = [name for name in dict.fromkeys([*then.sampling, *now.sampling]) if name != "stop"]
    pairs += [(name, then.sampling.get(name, unsaid), now.sampling.get(name, unsaid)) for name in names]
    return [(name, a, b) for name, a, b in pairs if a is not None and b is not None and _what(a) != _what(b)]


def _what(value: object) -> object:
    return value.sha256 if isinstance(value, HashedPart) else value


def _side(value: object) -> str:
    """One side of a difference, for a person."""
    if isinstance(value, tuple):
        return ", ".join(map(repr, value)) or "none"
    if isinstance(value, str) and len(value) == _SHA256_HEX:
        return repr(f"{value[:12]}…")
    return str(value) if isinstance(value, HashedPart) else repr(value)


def _stop(fingerprint: Fingerprint) -> tuple[str, ...] | None:
    """Stop strings; files of version 1 may have them among the sampling parameters, as JSON or as one string."""
    held = fingerprint.sampling.get("stop")
    if fingerprint.stop is not None or not isinstance(held, str):
        return fingerprint.stop
    try:
        strings = parse_json(held)
    except ValueError:
        strings = held
    return stop_part([str(one) for one in strings] if isinstance(strings, list) else held)


def _by_name(model: BaseChatModel, bound: Mapping[str, Any]) -> dict[str, Any]:
    described = {**model._get_ls_params(**bound)}
    sampling = {name: bound.get(name, getattr(model, name, None)) for name in _SAMPLING}
    return {
        "model": str(described.get("ls_model_name") or model.get_name()),
        "sampling": {name: value for name, value in sampling.items() if isinstance(value, float | int | str | bool)},
    }


def _given(model: BaseChatModel, bound: Mapping[str, Any], name: str) -> Any:
    """What ``name`` is set to: for the calls, on the model, or in the dicts that models pass on unread."""
    return next((value for value in _places(model, bound, name) if value is not None), None)


def _places(model: BaseChatModel, bound: Mapping[str, Any], name: str) -> Iterator[Any]:
    yield bound.get(name)
    for field in (name, "stop_sequences") if name == "stop" else (name,):
        yield getattr(model, field, None) if field in type(model).model_fields else None
    for holder in ("model_kwargs", "extra_body"):
        held = bound.get(holder, getattr(model, holder, None))
        yield held.get(name) if isinstance(held, Mapping) else None


def _scalar(value: Any) -> Any:
    return json.dumps(value, sort_keys=True, default=str) if isinstance(value, list | tuple | Mapping) else value
