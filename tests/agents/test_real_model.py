"""ChatReASC around a model that really decodes: llama.cpp with random weights, held to calls of tools by a grammar."""

from collections.abc import Iterator
from typing import Any

import pytest
from backends.llama_cpp.tiny_gguf import write_tiny_model
from backends.llama_cpp.tool_models import HERMES
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.tools import tool
from runnable import fakes

from agents.acting import Tree
from langchain_reasc import ChatReASC

ANY: Any = {"allow_fingerprint_mismatch": True, "max_samples": 5}
backend = pytest.importorskip("langchain_reasc_llama_cpp")


@tool
def switch(on: bool) -> str:
    """Switch the light."""
    return "on" if on else "off"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = write_tiny_model(tmp_path_factory.mktemp("agent") / "tiny.gguf", context=4096)
    with backend.ChatLlamaCpp(
        model_path=path, chat_template=HERMES, seed=3, n_ctx=4096, max_tokens=400, logit_bias={125: 8.0, 256: 8.0}
    ) as model:  # a brace, and the end token
        yield model


def test_calls_of_tools_are_voted_on_and_share_a_prefill(runner: Any, model: Any) -> None:
    tree, handler = Tree(), UsageMetadataCallbackHandler()
    chat = ChatReASC(model=model, max_samples=8).bind_tools([switch], tool_choice="any")
    message = runner.invoke(chat, "Light, please.", {"callbacks": [tree, handler]})
    account = message.response_metadata["reasc"]
    [call] = message.tool_calls
    assert call["name"] == "switch" and isinstance(call["args"]["on"], bool)
    assert set(account["parts"]["answer"]["evidence"]) <= {
        '[{"args": {"on": true}, "name": "switch"}]',
        '[{"args": {"on": false}, "name": "switch"}]',
    }
    assert account["launched"] > 1
    assert message.usage_metadata["input_token_details"]["cache_read"] > 0, "the prompt was computed once"
    [counted] = handler.usage_metadata.values()
    assert counted == message.usage_metadata
    [root] = tree.roots
    assert (root.run_type, len(root.child_runs)) == ("llm", account["launched"])


@pytest.mark.parametrize("tools", [[], [switch]], ids=["no tools", "tools"])
def test_a_text_is_streamed_token_by_token(runner: Any, tools: list[Any]) -> None:
    """Though the engine has a way of its own to draw samples, and reads calls from the text."""
    usage = UsageMetadataCallbackHandler()
    with backend.ChatLlamaCpp(max_tokens=20, seed=7) as model:
        chat = ChatReASC(model=model).bind_tools(tools) if tools else ChatReASC(model=model)
        chunks = runner.stream(chat, "How much is 17 + 25?", {"callbacks": [usage]})
    whole = sum(chunks[1:], chunks[0])
    assert len([chunk for chunk in chunks if chunk.text]) > 10
    assert [bool(chunk.usage_metadata) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert whole.response_metadata["reasc"]["tokens"]["output"] == whole.usage_metadata["output_tokens"] == 20
    assert [*usage.usage_metadata.values()] == [whole.usage_metadata]


@pytest.mark.parametrize("calibration", [None, fakes.calibration(signal="self_certainty", mean=6.0)])
def test_a_step_is_the_same_streamed_and_whole(runner: Any, model: Any, calibration: Any) -> None:
    """A first response that is streamed has the same seed and the same confidence."""
    chat = ChatReASC(model=model, calibration=calibration, **ANY).bind_tools([switch], tool_choice="any")
    chunks, whole = runner.stream(chat, "Light, please."), runner.invoke(chat, "Light, please.")
    streamed = sum(chunks[1:], chunks[0])
    assert [call["args"] for call in streamed.tool_calls] == [call["args"] for call in whole.tool_calls]
    accounts = [message.response_metadata["reasc"] for message in (streamed, whole)]
    assert accounts[0]["evidence"] == pytest.approx(accounts[1]["evidence"], rel=0.01)
    assert (sum(accounts[0]["evidence"].values()) == accounts[0]["samples"]) is (calibration is None)
    assert [account["without_confidence"] for account in accounts] == [0, 0]
