"""What is used of langchain-openai beyond its public interface is as it was; a failure names what a release changed."""

import ast
import inspect
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import langchain_reasc_openai
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import BaseChatOpenAI
from langchain_reasc_openai import langchain_openai_internals as internals
from langchain_reasc_openai.client import ServerClient
from packaging.requirements import Requirement
from pydantic import SecretStr

CHANGED = f"langchain-openai {version('langchain-openai')} changed what langchain_openai_internals.py rests on: "
PACKAGE = Path(langchain_reasc_openai.__file__).parent
SIGNATURES = {
    "_get_request_payload": ["self", "input_", "stop", "kwargs"],
    "_create_chat_result": ["self", "response", "generation_info"],
    "_convert_chunk_to_generation_chunk": ["self", "chunk", "default_chunk_class", "base_generation_info"],
    "_astream": ["self", "messages", "stop", "run_manager", "stream_usage", "kwargs"],
    "_agenerate": ["self", "messages", "stop", "run_manager", "kwargs"],
    "_convert_input": ["self", "model_input"],
    "_get_ls_params": ["self", "stop", "kwargs"],
}
FIELDS = (*internals.CLIENT_FIELDS, "http_async_client", "stream_chunk_timeout", "model_kwargs", "openai_api_key")
PROMPT = [HumanMessage("How much is 2 + 2?")]
USAGE = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}


def model(kind: type[ChatOpenAI] = ChatOpenAI, **fields: Any) -> Any:
    return kind(model="m", base_url="http://host/v1", api_key=SecretStr("no-key"), **fields)


def chunk(index: int, text: str, **more: Any) -> dict[str, Any]:
    logprobs = {"content": [{"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
    choice = {"index": index, "delta": {"content": text}, "finish_reason": None, "logprobs": logprobs}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def test_methods_take_what_they_took_and_fields_are_there() -> None:
    for name, arguments in SIGNATURES.items():
        method = getattr(BaseChatOpenAI, name, None)
        assert method is not None, f"{CHANGED}{name} is gone"
        assert list(inspect.signature(method).parameters) == arguments, f"{CHANGED}{name} takes other arguments"
    for name in FIELDS:
        assert name in ChatOpenAI.model_fields, f"{CHANGED}the field {name} is gone"


def test_the_version_is_one_of_those_that_are_asked_for() -> None:
    asked = [Requirement(one) for one in requires("langchain-reasc") or ()]
    [ours] = [one for one in asked if one.name == "langchain-openai" and "openai" in str(one.marker)]
    assert version("langchain-openai") in ours.specifier


def test_nothing_else_in_the_package_uses_its_private_members() -> None:
    private = {name for name in set(dir(ChatOpenAI)) - set(dir(BaseChatModel)) if name.startswith("_")}
    hooks = {"_astream", "_agenerate", "_convert_input"}  # of langchain-core, which our own class may call its own
    used = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in (private if _own(node.value) else private | hooks):
                used[f"{file.name}:{node.lineno}"] = node.attr
    assert {place.partition(":")[0] for place in used} == {"langchain_openai_internals.py"}, used
    assert {"_get_request_payload", "_convert_chunk_to_generation_chunk", "_default_params"} <= set(used.values())


def _own(value: ast.expr) -> bool:
    """Whether it is ``self`` or ``super()`` that is asked."""
    asked = value.func if isinstance(value, ast.Call) else value
    return isinstance(asked, ast.Name) and asked.id in ("self", "super")


def test_the_payload_holds_the_request_under_openai_s_names() -> None:
    sent = model()._get_request_payload(PROMPT, stop=["x"], n=2, extra_body={"top_k": 4}, max_tokens=9)
    known = {"messages": [{"content": PROMPT[0].content, "role": "user"}], "model": "m", "n": 2, "stop": ["x"]}
    assert {name: sent.get(name) for name in known} == known, f"{CHANGED}_get_request_payload"
    assert sent["extra_body"] == {"top_k": 4} and "max_completion_tokens" in sent, f"{CHANGED}_get_request_payload"
    ours = model(ServerClient)._get_request_payload(PROMPT, max_tokens=9)
    assert ours["max_tokens"] == 9 and "max_completion_tokens" not in ours


def test_an_event_becomes_a_chunk_with_its_logprobs_or_its_usage() -> None:
    said = model(ServerClient).chunk_of(chunk(1, "four"))
    assert said is not None and said.text == "four", f"{CHANGED}_convert_chunk_to_generation_chunk"
    assert (said.generation_info or {})["logprobs"]["content"][0]["token"] == "four", f"{CHANGED}its generation_info"
    last = model(ServerClient).chunk_of(chunk(0, "", choices=[], usage=USAGE))
    assert last is not None and last.message.usage_metadata["output_tokens"] == 4, f"{CHANGED}its usage"  # type: ignore[attr-defined]


def test_the_default_parameters_follow_the_fields() -> None:
    said = internals.default_parameters(model(temperature=0.5, top_p=0.9, seed=3, model_kwargs={"user": "me"}))
    known = {"temperature": 0.5, "top_p": 0.9, "seed": 3, "user": "me", "model": "m"}
    assert {name: said.get(name) for name in known} == known, f"{CHANGED}_default_params"
