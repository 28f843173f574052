"""What is wrong with a name or a value is said in a line, with what was meant and without secrets."""

import logging
import threading
import time
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from langchain_reasc.complaints import check_names, explained, forget_warnings, nearest, warn_once
from langchain_reasc.exceptions import ConfigurationError


def _even(value: int) -> int:
    if value % 2:
        raise ConfigurationError(f"{value} is odd; take {value + 1}")
    return value


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str
    shares: list[Annotated[float, Field(ge=0)]] = []
    choice: list[int] | dict[str, int] | bool = True
    even: Annotated[int, AfterValidator(_even)] = 0
    api_key: SecretStr | None = None
    default_headers: dict[str, str] = {}
    token_budget: int = 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": 3}, "model: Input should be a valid string, got 3"),
        ({}, "model is missing"),
        ({"model": "m", "shares": [1, -1]}, "shares[1]: Input should be greater than or equal to 0, got -1"),
        ({"model": "m", "shares": "x" * 300}, f"shares: Input should be a valid list, got '{'x' * 199}..."),
        (
            {"model": "m", "choice": 3.5},
            "choice: Input should be a valid list or a valid dictionary or a valid boolean, got 3.5",
        ),
        ({"model": "m", "even": 3}, "3 is odd; take 4"),
        ({"model": "m", "api_key": 123456}, "api_key: Input should be a valid string"),
        ({"model": "m", "default_headers": {"x": 77}}, "default_headers.x: Input should be a valid string"),
        (
            {"model": "m", "token_budget": [], "zzz": 1},
            "token_budget: Input should be a valid integer, got []; zzz is unknown",
        ),
    ],
)
def test_what_pydantic_found(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as found:
        Options(**given)
    assert str(explained(found.value)) == said


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("max_new_tokens", ["min_p", "max_tokens"], "max_tokens"),
        ("repeat_penalty", ["repetition_penalty", "top_p"], "repetition_penalty"),
        ("n_samples", ["max_samples", "timeout"], "max_samples"),
        ("temprature", ["temperature", "measure"], "temperature"),
        ("temperature", ["measure"], None),  # no slip, but an option that there is not here
        ("zzz", ["temperature"], None),
    ],
)
def test_the_name_that_is_meant(name: str, known: list[str], meant: str | None) -> None:
    assert nearest(name, known) == meant


def test_unknown_names_are_refused_with_what_there_is() -> None:
    check_names(["a"], ["a", "b"], "option")
    with pytest.raises(ConfigurationError, match=r"'zzz'.*a, b$"):
        check_names(["a", "zzz"], ["b", "a"], "option")


def test_threads_that_warn_at_the_same_time_log_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    begun = threading.Barrier(8)

    class Slow(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            time.sleep(0.05)
            return True

    def warn() -> None:
        begun.wait()
        warn_once("the disk is nearly full")

    slow = Slow()
    complaints_log = logging.getLogger("langchain_reasc.complaints")
    complaints_log.addFilter(slow)
    forget_warnings()
    try:
        threads = [threading.Thread(target=warn) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        complaints_log.removeFilter(slow)
    assert [record.getMessage() for record in caplog.records] == ["the disk is nearly full"]
