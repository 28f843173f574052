"""What is used of langchain-openai beyond its public interface is as it was; a failure names what a release changed."""

import ast
import inspect
from importlib.metadata import requires, version
from pathlib import Path

import langchain_reasc_openai
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import BaseChatOpenAI
from langchain_reasc_openai import langchain_openai_internals as internals
from openai import AsyncOpenAI
from packaging.requirements import Requirement

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


def test_methods_take_what_they_took_and_fields_are_there() -> None:
    for name, arguments in SIGNATURES.items():
        method = getattr(BaseChatOpenAI, name, None)
        assert method is not None, f"{CHANGED}{name} is gone"
        assert list(inspect.signature(method).parameters) == arguments, f"{CHANGED}{name} takes other arguments"
    for name in FIELDS:
        assert name in ChatOpenAI.model_fields, f"{CHANGED}the field {name} is gone"
    client = AsyncOpenAI(api_key="any")
    for name in ("_client", "_prepare_options", "_build_request", "_make_status_error_from_response"):
        assert hasattr(client, name), f"openai {version('openai')} changed how it makes requests: {name} is gone"


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
