"""A decision model in LangChain's own middleware: which model answers."""

from typing import Any

import pytest

pytest.importorskip("langchain_core.decisions", reason="langchain-core has decisions from 1.8 on")
pytest.importorskip("langchain.agents.middleware.model_router", reason="langchain routes by decisions from 1.5 on")

from langchain.agents import create_agent
from langchain.agents.middleware import ModelChoice, ModelRouterMiddleware
from langchain_core.callbacks import UsageMetadataCallbackHandler
from runnable.fakes import PROMPT_TOKENS, Reply, saying

from langchain_reasc import ReASCDecisionModel
from langchain_reasc.exceptions import NoVote

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
ASKED = {"messages": [("human", "Prove it.")]}


def naming(label: str) -> ReASCDecisionModel:
    return ReASCDecisionModel(llm=saying(Reply(f"Well. <answer>{label}</answer>")))


def routed(classifier: ReASCDecisionModel) -> Any:
    choices = {
        "fast": ModelChoice(saying("quick"), "Simple tasks."),
        "deep": ModelChoice(saying("proven"), ["Proofs."]),
    }
    router = ModelRouterMiddleware(choices=choices, instructions="Choose a model.", classifier=classifier)
    return create_agent(saying("nobody"), middleware=[router])


@pytest.mark.parametrize(("label", "said"), [("fast", "the answer is quick"), ("Deep", "the answer is proven")])
def test_the_router_asks_the_model_that_the_votes_name(runner: Any, label: str, said: str) -> None:
    usage = UsageMetadataCallbackHandler()
    state = runner.invoke(routed(naming(label)), ASKED, {"callbacks": [usage]})
    assert state["messages"][-1].text == said
    route = state["model_route"]
    assert route.choice == label.lower() and route.probabilities[label.lower()] == 5 / 6 and route.confidence > 0.95
    [counted] = usage.usage_metadata.values()
    assert counted["input_tokens"] == (4 + 1) * PROMPT_TOKENS  # four samples of the decision, one answer


def test_no_candidate_is_streamed() -> None:
    shown = [chunk.text for chunk, _ in routed(naming("deep")).stream(ASKED, stream_mode="messages")]
    assert "".join(shown) == "the answer is proven"


def test_a_route_without_a_vote_is_an_error(runner: Any) -> None:
    with pytest.raises(NoVote, match="'model_route'"):
        runner.invoke(routed(naming("neither")), ASKED)
