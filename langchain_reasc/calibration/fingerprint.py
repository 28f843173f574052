"""What a calibration holds for: the model, its sampling and its prompt, and the refusal of any other."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_reasc.calibration.schema import Calibration, Fingerprint
from langchain_reasc.exceptions import FingerprintMismatch

__all__ = ["check_fingerprint", "check_made_of", "fingerprint_of", "prompt_hash"]

_SHOWN = {"prompt_sha256": "prompt_sha256 of the system messages"}
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "stop")


def fingerprint_of(
    model: BaseChatModel, *, kwargs: Mapping[str, Any] | None = None, messages: Sequence[BaseMessage] | None = None
) -> Fingerprint:
    """The fingerprint of a chat model, the arguments bound to it and the system messages in front of a question.

    A model that knows more of itself than its name offers ``calibration_fingerprint(**kwargs)``, as our llama.cpp model
    does (file hash, quantisation).
    """
    bound = dict(kwargs or {})
    prompt = None if messages is None else prompt_hash(messages)
    own = getattr(model, "calibration_fingerprint", None)
    if own is not None:
        return Fingerprint(**own(**bound), prompt_sha256=prompt)
    described = {**model._get_ls_params(**bound)}
    sampling = {name: bound.get(name, getattr(model, name, None)) for name in _SAMPLING}
    return Fingerprint(
        model=str(described.get("ls_model_name") or model.get_name()),
        sampling={name: value for name, value in sampling.items() if isinstance(value, float | int | str | bool)},
        prompt_sha256=prompt,
    )


def prompt_hash(messages: Sequence[BaseMessage]) -> str:
    """SHA-256 of the system messages: the part of a prompt that does not change from question to question."""
    fixed = "\n".join(str(message.content) for message in messages if message.type == "system")
    return hashlib.sha256(fixed.encode()).hexdigest()


def check_fingerprint(calibration: Calibration, running: Fingerprint) -> None:
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
        calibration: made of one signal, over k alternatives or a vocabulary of V.
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
        f"{_SHOWN.get(name, name)}: calibrated on {then!r}, running {now!r}" for name, then, now in differing
    )
    raise FingerprintMismatch(
        f"the calibration does not fit what runs ({sides}). Calibrate again with `reasc calibrate`, or override "
        "with allow_fingerprint_mismatch=True (`reasc ask --allow-mismatch`)"
    )


def _differences(then: Fingerprint, now: Fingerprint) -> list[tuple[str, object, object]]:
    # A renamed file is the same model.
    fields = ("model_sha256",) if then.model_sha256 and now.model_sha256 else ("model",)
    pairs: list[tuple[str, object, object]] = [
        (name, getattr(then, name), getattr(now, name)) for name in (*fields, "quantization", "prompt_sha256")
    ]
    # Who hashes its file tells everything that matters; what it leaves out has no effect.
    unsaid = "no effect" if then.model_sha256 and now.model_sha256 else None
    names = dict.fromkeys([*then.sampling, *now.sampling])
    pairs += [(name, then.sampling.get(name, unsaid), now.sampling.get(name, unsaid)) for name in names]
    return [(name, a, b) for name, a, b in pairs if a is not None and b is not None and a != b]
