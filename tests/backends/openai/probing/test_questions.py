"""Whatever a server answers, probing ends with what is known, or with an error of this library."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_reasc_openai.probing.asking import Answer
from langchain_reasc_openai.probing.logprobs_seen import counted_logprobs
from langchain_reasc_openai.probing.questions import ask_everything

from langchain_reasc.exceptions import ConfigurationError, ServerError

KEYS = ["choices", "message", "logprobs", "content", "logprob", "top_logprobs", "token_logprobs", "usage", "data", "id"]
KEYS += ["owned_by", "version", "error", "delta", "compatibility_type", "detail"]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "vllm", "tiny", "max_tokens"])
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner), max_leaves=5
)
row = st.fixed_dictionaries({"logprob": leaves, "top_logprobs": anything})
payload = anything | st.fixed_dictionaries({"content": st.lists(row | leaves, max_size=2) | anything})
payload |= st.fixed_dictionaries({"token_logprobs": anything, "top_logprobs": anything})
choice = st.fixed_dictionaries({"message": leaves, "logprobs": payload})
bodies = anything | st.fixed_dictionaries({"choices": st.lists(choice | leaves, min_size=1, max_size=2)})
answers = st.builds(Answer, st.sampled_from([200, 200, 200, 400, 404, 422, 429, 500, 503]), st.just({}), bodies)
GOOD = Answer(200, {}, {"choices": [{"message": {"content": "So"}}]})


class Nonsense:
    """Stands in for a server that says anything at all."""

    url = "http://localhost:1/v1"

    def __init__(self, data: Any) -> None:
        self.data = data

    def get(self, address: str) -> Answer:
        answer: Answer = self.data.draw(answers)
        return answer

    def chat(self, body: dict[str, Any]) -> Answer:
        if body.keys() == {"model", "messages", "max_tokens"} and self.data.draw(st.booleans()):
            return GOOD
        answer: Answer = self.data.draw(answers)
        return answer

    @contextmanager
    def stream(self, body: dict[str, Any]) -> Iterator[Any]:
        said = self.data.draw(answers | st.lists(st.dictionaries(st.sampled_from(KEYS), anything), max_size=3))
        yield said if isinstance(said, Answer) else iter(said)


@given(choices=st.lists(choice | leaves, max_size=2) | leaves)
def test_any_logprobs_are_counted_or_passed_over(choices: Any) -> None:
    tokens, alternatives = counted_logprobs(choices)
    assert tokens >= 0 and alternatives >= 0


@settings(max_examples=60)
@given(data=st.data())
def test_nonsense_is_survived(data: Any) -> None:
    try:
        found = ask_everything(Nonsense(data), "tiny")  # type: ignore[arg-type]
    except (ServerError, ConfigurationError) as error:
        assert str(error)
        return
    assert found.learned == "probe"
    assert found.logprobs or found.top_logprobs is None
    assert found.top_logprobs is None or 0 <= found.top_logprobs <= 100
