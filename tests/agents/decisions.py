"""Three questions, and a model that answers them by a script; imported where langchain-core has decisions."""

from typing import Any

from langchain_core.decisions import Choice, Noul, NoulCriteria, Score
from runnable.fakes import Reply, Scripted, saying

from langchain_reasc import ReASCDecisionModel

TEAM = Choice(instructions="Which team?", criteria={"billing": "Invoices.", "sales": None, "not sales": {"else": []}})
URGENT = Noul(instructions="Is it urgent?", criteria=NoulCriteria(true="It cannot wait."))
ANGER = Score(instructions="How angry?", criteria=["calm", "concerned", {"very": "angry"}])


def naming(*labels: str | Reply) -> Scripted:
    """A model whose sample i names ``labels[i]`` (the last one for all beyond)."""
    said = [one if isinstance(one, Reply) else Reply(f"I think so. <answer>{one}</answer>") for one in labels]
    return saying(*said)


def ask(runner: Any, model: Scripted, question: Any, config: Any = None, **options: Any) -> Any:
    """The response to one question, whose id is q."""
    decisions = ReASCDecisionModel(llm=model, **options)
    return runner.invoke(decisions, {"state": "My invoice is wrong.", "questions": {"q": question}}, config)
