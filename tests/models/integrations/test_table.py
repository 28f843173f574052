"""The table of docs/chat_models.md says what is known, and every row of it is tested."""

import re

from langchain_core.language_models import FakeListChatModel

from langchain_reasc.models import KNOWN, integration_of

from .providers import PAGE, PROVIDERS, ROWS, WITH_LOGPROBS


def test_every_known_class_has_a_row() -> None:
    on_openai = {"ChatOpenAI", "AzureChatOpenAI", "ChatDeepSeek"}
    elsewhere = {"ChatLlamaCpp", "BaseChatOpenAI", "ChatVertexAI"}
    assert {path.rpartition(".")[2] for path in KNOWN} - elsewhere | on_openai == set(ROWS)


def test_a_row_says_what_is_known_and_tested() -> None:
    for name, (logprobs, k, _, streamed) in ROWS.items():
        provider = PROVIDERS[name]
        integration = integration_of(provider.model("http://127.0.0.1:9"))
        assert (name in WITH_LOGPROBS) == bool(integration.logprobs) == logprobs.startswith("yes"), name
        assert k == (str(integration.max_top_logprobs) if integration.logprobs else "")
        assert k == str(provider.alternatives or "")
        assert streamed == ("yes" if integration.streams and integration.streams_logprobs else "no")


def test_the_example_of_a_registration_works() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "chat_models.md", "exec"), {})
    mine = type("ChatMine", (FakeListChatModel,), {"__module__": "my_package"})
    assert integration_of(mine(responses=[])).max_top_logprobs == 10
