"""Fingerprints: what a calibration was measured on, and the refusal of anything else."""

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage, SystemMessage

from langchain_reasc.calibration import Calibration, Fingerprint, HashedPart, check_fingerprint, fingerprint_of
from langchain_reasc.exceptions import FingerprintMismatch

THEN = Fingerprint(
    model="small.gguf",
    model_sha256="aa",
    quantization="F16",
    sampling={"temperature": 0.7, "top_k": 40},
    prompt_sha256="cc",
    tools=HashedPart(shown="add, search", sha256="ee" * 32),
    grammar=HashedPart(shown="none", sha256=None),
    stop=("END",),
    answer="boxed",
)
OTHER = HashedPart(shown="add, search", sha256="ff" * 32)
FEW_SHOT = HashedPart(shown="system, human, ai", sha256="11" * 32)


def calibrated(on: Fingerprint, template: Calibration) -> Calibration:
    return template.model_copy(update={"fingerprint": on})


@pytest.mark.parametrize(
    ("running", "named", "then", "now"),
    [
        ({"model_sha256": "bb"}, "model_sha256", "'aa'", "'bb'"),
        ({"model_sha256": None, "model": "large.gguf"}, "model", "'small.gguf'", "'large.gguf'"),
        ({"quantization": "Q4_K_M"}, "quantization", "'F16'", "'Q4_K_M'"),
        ({"prompt_sha256": "dd"}, "prompt_sha256 of the system messages", "'cc'", "'dd'"),
        ({"sampling": {"temperature": 1.0, "top_k": 40}}, "temperature", "0.7", "1.0"),
        ({"model_sha256": None, "sampling": {"top_k": 0}}, "top_k", "40", "0"),
        ({"sampling": {"temperature": 0.7, "top_k": 40, "lora": "ab*1.0"}}, "lora", "'no effect'", "'ab*1.0'"),
        ({"sampling": {"temperature": 0.7}}, "top_k", "40", "'no effect'"),
        ({"tools": OTHER}, "tools", "add, search (eeeeeeeeeeee)", "add, search (ffffffffffff)"),
        ({"tools": THEN.grammar}, "tools", "add, search (eeeeeeeeeeee)", "none"),
        ({"grammar": HashedPart(shown="root ::= …", sha256="ab" * 32)}, "grammar", "none", "root ::= … (abababababab)"),
        ({"stop": ()}, "stop strings", "'END'", "none"),
        ({"stop": ("END", "\n\n")}, "stop strings", "'END'", "'END', '\\n\\n'"),
        ({"answer": "find_it"}, "answer", "'boxed'", "'find_it'"),
        ({"model_sha256": "bb" * 32}, "model_sha256", "'aa'", "'bbbbbbbbbbbb…'"),
    ],
)
def test_a_mismatch_shows_both_sides_and_the_override(
    offline: Calibration, running: dict[str, Any], named: str, then: str, now: str
) -> None:
    with pytest.raises(FingerprintMismatch) as raised:
        check_fingerprint(calibrated(THEN, offline), THEN.model_copy(update=running))
    message = str(raised.value)
    assert f"({named}: calibrated on {then}, running {now})" in message, "that difference and no other"
    assert "allow_fingerprint_mismatch=True" in message and "reasc calibrate" in message


def test_every_difference_is_shown_at_once(offline: Calibration) -> None:
    running = THEN.model_copy(update={"quantization": "Q8_0", "sampling": {"temperature": 0.2}})
    with pytest.raises(FingerprintMismatch, match=r"quantization: .*; temperature: "):
        check_fingerprint(calibrated(THEN, offline), running)


@pytest.mark.parametrize(
    "running",
    [
        {},
        {"model": "renamed.gguf"},  # the same file under another name
        {"model_sha256": None},
        {"quantization": None, "prompt_sha256": None},
        {"model_sha256": None, "sampling": {}},  # a server that tells less of itself
        {"model_sha256": None, "sampling": {"temperature": 0.7, "top_k": None, "min_p": 0.05}},
        {"sampling": {"temperature": 0.7, "top_k": 40.0}},
        {"tools": None, "grammar": None, "stop": None, "answer": None},
        {"tools": HashedPart(shown="search, add", sha256="ee" * 32)},
        {"prompt": FEW_SHOT},
    ],
)
def test_what_is_unknown_or_the_same_is_accepted(offline: Calibration, running: dict[str, Any]) -> None:
    now = THEN.model_copy(update=running)
    check_fingerprint(calibrated(THEN, offline), now)
    check_fingerprint(calibrated(now, offline), THEN)
    check_fingerprint(calibrated(Fingerprint(), offline), now)


def test_the_fixed_part_of_a_prompt_says_more_than_its_system_messages(offline: Calibration) -> None:
    then = THEN.model_copy(update={"prompt": FEW_SHOT})
    check_fingerprint(calibrated(then, offline), then.model_copy(update={"prompt_sha256": "dd"}))
    other = then.model_copy(update={"prompt": HashedPart(shown="system", sha256="22" * 32)})
    with pytest.raises(FingerprintMismatch, match=r"fixed part of the prompt: .* system, human, ai \(1.* system \(2"):
        check_fingerprint(calibrated(then, offline), other)


class Described(FakeListChatModel):
    """A chat model with sampling parameters, as providers' models have them."""

    model_name: str = "described"
    temperature: float | None = 0.5
    top_p: float | None = None


class Fingerprinted(Described):
    def calibration_fingerprint(self, **kwargs: Any) -> dict[str, Any]:
        return {"model": "own.gguf", "model_sha256": "ee", "sampling": {"temperature": 0.1, **kwargs}}


def test_the_fingerprint_of_any_chat_model() -> None:
    found = fingerprint_of(Described(responses=["1"]))
    assert found.model and found.model_sha256 is None and found.prompt_sha256 is None
    assert found.sampling == {"temperature": 0.5}
    assert fingerprint_of(Described(responses=["1"]), kwargs={"temperature": 0.9}).sampling == {"temperature": 0.9}


def test_a_model_that_knows_itself_is_asked() -> None:
    found = fingerprint_of(Fingerprinted(responses=["1"]), kwargs={"top_p": 0.9})
    assert (found.model, found.model_sha256) == ("own.gguf", "ee")
    assert found.sampling == {"temperature": 0.1, "top_p": 0.9}


def test_the_prompt_is_its_system_messages() -> None:
    model = Described(responses=["1"])

    def of(*messages: SystemMessage | HumanMessage) -> str | None:
        return fingerprint_of(model, messages=messages).prompt_sha256

    system = SystemMessage("Answer with a number.")
    assert of(system, HumanMessage("1 + 1?")) == of(system, HumanMessage("2 + 2?"))
    assert of(system, HumanMessage("1 + 1?")) != of(HumanMessage("1 + 1?"))
    assert of(system) != of(SystemMessage("Answer with a letter."))
