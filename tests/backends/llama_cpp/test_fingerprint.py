"""What a calibration of the shipped model holds for, and what it is refused for."""

from typing import Any

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.native import embedded_model_path
from pydantic import BaseModel

from langchain_reasc import ReASCRunnable
from langchain_reasc.calibration import calibrate_mixture, check_fingerprint, load_calibration
from langchain_reasc.exceptions import FingerprintMismatch
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models import PreparedModel

SHIPPED = embedded_model_path().with_name("calibration.json")
GRAMMAR = 'root ::= "4" "2"'


class Total(BaseModel):
    """The total."""

    value: int


BOUND = {
    "stop strings: calibrated on none, running 'END'": lambda model: model.bind(stop=["END"]),
    "tools: calibrated on none, running Total ": lambda model: model.bind_tools([Total]),
    "grammar: calibrated on none, running root": lambda model: model.bind(grammar=GRAMMAR),
    "response format: calibrated on none, running Total": lambda model: model.with_structured_output(Total).steps[0],
    "tools: .*must call Total": lambda model: model.with_structured_output(Total, method="function_calling").steps[0],
}


def test_the_shipped_calibration_is_accepted_by_the_shipped_model(shipped: ChatLlamaCpp) -> None:
    made = load_calibration(SHIPPED)
    check_fingerprint(made, PreparedModel.of(shipped).fingerprint())
    for bind in BOUND.values():  # it says nothing of what may be bound
        check_fingerprint(made, PreparedModel.of(bind(shipped)).fingerprint(answer="auto"))
    ReASCRunnable(model=shipped.bind(stop=["END"]), calibration=made, max_samples=1).invoke("How much is 2 + 3?")
    with pytest.raises(FingerprintMismatch, match=r"temperature: calibrated on 1\.0, running 0\.5"):
        check_fingerprint(made, PreparedModel.of(shipped.bind(temperature=0.5)).fingerprint())


@pytest.mark.parametrize("says", BOUND)
def test_what_is_bound_is_part_of_a_new_one(shipped: ChatLlamaCpp, says: str) -> None:
    bound, scores = BOUND[says](shipped), [float(n % 7) for n in range(30)]
    made = calibrate_mixture(scores, measure=Measure(), fingerprint=PreparedModel.of(shipped).fingerprint())
    check_fingerprint(made, PreparedModel.of(shipped).fingerprint())
    with pytest.raises(FingerprintMismatch, match=says):
        check_fingerprint(made, PreparedModel.of(bound).fingerprint())
    other = made.model_copy(update={"fingerprint": PreparedModel.of(bound).fingerprint()})
    check_fingerprint(other, PreparedModel.of(BOUND[says](shipped)).fingerprint())
    with pytest.raises(FingerprintMismatch, match="running none"):
        check_fingerprint(other, PreparedModel.of(shipped).fingerprint())


@pytest.mark.parametrize("stop", [["END"], "END", []])
def test_the_model_s_own_fingerprint_takes_stop_strings(shipped: ChatLlamaCpp, stop: Any) -> None:
    assert shipped.calibration_fingerprint(stop=stop) == shipped.calibration_fingerprint()
    assert PreparedModel.of(shipped.model_copy(update={"stop": ["A"]})).fingerprint().stop == ("A",)
