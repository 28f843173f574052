"""ReASCRunnable as a step in a chain: every way to call it, and what comes out."""

from typing import Any

import pytest
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import JsonOutputToolsParser, PydanticToolsParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError

from .fakes import Reply, calibration, saying

pytestmark = pytest.mark.sync_only

PROMPT = ChatPromptTemplate.from_messages([("system", "Think."), ("human", "{question}")])
INPUTS = {
    "string": "q",
    "messages": [SystemMessage("Think."), HumanMessage("q")],
    "tuples": [("human", "q")],
    "dicts": [{"role": "user", "content": "q"}],
    "prompt value": PROMPT.invoke({"question": "q"}),
}


def echo(question: str, index: int) -> Reply:
    return Reply(f"the answer is {question}")


@pytest.mark.parametrize("value", INPUTS.values(), ids=INPUTS)
def test_it_takes_what_a_chat_model_takes(runner: Any, value: Any) -> None:
    model = saying("42")
    message = runner.invoke(ReASCRunnable(model=model), value)
    assert isinstance(message, AIMessage)
    assert message.text == "the answer is 42"
    assert {asked for asked, _ in model.log.calls} == {"q"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (3, "got int"),
        ({"question": "q"}, "got dict"),
        ([], "no message"),
    ],
    ids=repr,
)
def test_other_input_is_refused(runner: Any, value: Any, says: str) -> None:
    model = saying("42")
    with pytest.raises(ConfigurationError, match=f"input.*{says}"):
        runner.invoke(ReASCRunnable(model=model), value)
    assert model.log.calls == []


@pytest.mark.parametrize("calibrated", [None, "mixture"])
def test_an_empty_batch_is_empty(runner: Any, calibrated: Any) -> None:
    reasc = ReASCRunnable(model=saying("1"), calibration=calibrated)
    assert runner.batch(reasc, []) == []
    assert runner.batch_as_completed(reasc, []) == []
    if calibrated is None:
        assert runner.batch(reasc, [], total_samples=20) == []


def test_an_empty_completion_casts_no_vote(runner: Any) -> None:
    result = runner.solve(ReASCRunnable(model=saying(Reply("", logprob=None), "1"), calibration=calibration()), "q")
    assert result.responses[0].answer is None
    assert result.answer == "1"
    assert result.decision.evidence.keys() == {"1"}
    assert result.message.response_metadata["reasc"]["without_confidence"] == 0


def test_an_extractor_that_raises_on_one_response_loses_nothing(runner: Any) -> None:
    def fussy(text: str) -> str:
        return {"the answer is 1": "1"}[text]

    result = runner.solve(ReASCRunnable(model=saying("1", "odd", "1", "1", "1"), answer=fussy), "q")
    assert (result.answer, result.decision.evidence) == ("1", {"1": 4.0})
    assert any("KeyError('the answer is odd')" in notice for notice in result.notices)


def test_dumping_and_describing_do_not_crash() -> None:
    reasc = ReASCRunnable(model=saying("1"), calibration=calibration())
    assert "langchain_reasc" in dumps(reasc) and '"not_implemented"' in dumps(reasc)
    assert reasc.get_graph().nodes
    assert reasc.get_input_jsonschema() and reasc.get_output_jsonschema()
    assert reasc.get_name() == "ReASCRunnable"


class Pay(BaseModel):
    """Pay."""

    euros: int


PAY = Reply("paying", calls=(("Pay", {"euros": 3}),))
PARSERS: list[tuple[Any, Any]] = [
    (StrOutputParser(), "paying"),
    (JsonOutputToolsParser(), [{"type": "Pay", "args": {"euros": 3}}]),
    (PydanticToolsParser(tools=[Pay]), [Pay(euros=3)]),
]


@pytest.mark.parametrize(("parser", "parsed"), PARSERS)
def test_a_parser_finds_the_same_in_a_stream_as_in_a_message(runner: Any, parser: Any, parsed: Any) -> None:
    chain = ReASCRunnable(model=saying(PAY).bind_tools([Pay])) | parser
    assert runner.stream(chain, "q")[-1] == runner.invoke(chain, "q") == parsed
