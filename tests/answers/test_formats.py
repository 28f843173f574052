"""Values that are the same though they are spelled otherwise, where a schema or their form says so."""

import unicodedata
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from pydantic import Field, create_model
from runnable.fakes import Reply, saying

from answers.messages import answer, call, called, text, voted
from langchain_reasc import ReASCRunnable
from langchain_reasc.answers import json_object, schemas_of

ID = "0b5c2a3e-1d4f-4a6b-8c7d-9e0f1a2b3c4d"
NFC, NFD = (unicodedata.normalize(form, "Café Zoë") for form in ("NFC", "NFD"))
AT = "2026-01-05T10:00:00"
MILLIS = "2026-01-05T10:00:00.1"

SAME = [
    (date, "2026-01-05", "2026-01-05T00:00:00"),
    (datetime, f"{AT}Z", f"{AT}+00:00"),
    (datetime, f"{AT}Z", "2026-01-05T12:00:00+02:00"),
    (datetime, f"{AT}Z", "2026-01-05 10:00:00z"),
    (datetime, AT, "2026-01-05 10:00"),
    (list[datetime], [f"{AT}Z"], [f"{AT}+00:00"]),
    (time, "10:00", "10:00:00"),
    (timedelta, "PT90S", "PT1M30S"),
    (UUID, ID, ID.upper()),
    (UUID, ID, ID.replace("-", "")),
    (Decimal, "1.10", "1.1"),
    (Decimal, "100", 100),
    (tuple[date, Decimal], ["2026-01-05", "1.0"], ["2026-01-05T00:00", 1]),
    (Decimal | None, "007", 7),
    (Decimal, "0.12345678901234567890123456789012", "0.123456789012345678901234567890120"),
    (str, NFC, NFD),
    # by their form
    (str, ID, ID.upper()),
    (str, f"{AT}Z", f"{AT}+00:00"),
]
OTHER = [
    (str, "1.10", "1.1"),  # a version
    (str, f"{AT}Z", "2026-01-05T12:00:00+02:00"),
    (str, ID, ID.replace("-", "")),
    (str, "deadbeef", "DEADBEEF"),
    (str, "\ufb01le", "file"),  # NFKC would make them one
    (str | float, "1.10", "1.1"),
    (datetime, f"{AT}Z", f"{AT}+02:00"),
    (Decimal, "0.12345678901234567890123456789012", "0.12345678901234567890123456789013"),
    (Decimal, "9007199254740993", "9007199254740992"),
]


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"), [(*case, True) for case in SAME] + [(*case, False) for case in OTHER], ids=str
)
def test_what_is_the_same_votes_together_and_nothing_else(kind: Any, one: Any, other: Any, same: bool) -> None:
    model = create_model("Trip", at=(kind, ...))
    decimals = same and "Decimal" in str(kind)  # which JSON schemas hold as strings
    for schema in (model,) if decimals else (model, model.model_json_schema()):
        for by_field, make in ((False, text), (True, called)):
            votes = [voted(make(at=value), schema=schema, by_field=by_field) for value in (one, other)]
            assert None not in [vote.answer for vote in votes]
            assert (votes[0].answer == votes[1].answer) is same
            assert (votes[0].fields == votes[1].fields) is (same or not by_field)
    tool = StructuredTool.from_function(lambda at: "", name="search", description="Search.", args_schema=model)
    bound = schemas_of([tool])
    assert (answer(call(at=one), schemas=bound) == answer(call(at=other), schemas=bound)) is same


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("date", "soon"),
        ("date-time", f"{MILLIS}000001Z"),  # finer than pydantic reads it
        ("no", "1.0"),
    ],
)
def test_what_is_no_such_thing_stays_as_it_is(kind: str, odd: str) -> None:
    bound = {"search": {"type": "object", "properties": {"at": {"type": "string", "format": kind}}}}
    assert f'"{odd}"' in answer(call(at=odd), schemas=bound)


def test_decimals_are_numbers_in_a_vote_by_field(runner: Any) -> None:
    bill = create_model("Bill", euros=(Decimal, Field(max_digits=6, decimal_places=2)), day=(datetime, ...))
    said = [("9.90", f"{AT}Z"), ("10", f"{AT}+00:00"), ("10.00", "2026-01-05T11:00:00+01:00"), (10, f"{AT}Z")]
    replies = [Reply("", calls=(("Bill", {"euros": euros, "day": day}),)) for euros, day in said]
    answer = json_object(by_field=True, schema=bill)
    result = runner.solve(ReASCRunnable(model=saying(*replies), answer=answer, max_samples=4), "q")
    message: AIMessage = result.message
    assert bill(**message.tool_calls[0]["args"]) == bill(euros=10, day=f"{AT}Z")  # type: ignore[arg-type]
    assert result.answer == f'{{"day": "{AT}Z", "euros": 10}}'
