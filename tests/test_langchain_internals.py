"""What is used of LangChain and pydantic beyond their public interfaces is as it was; a failure names what changed."""

import ast
import inspect
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import langchain_core.callbacks.manager as callbacks
import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel, _utils, chat_models
from langchain_core.tracers import context as tracing
from langchain_core.utils import utils
from pydantic import BaseModel, field_validator

import langchain_reasc
from langchain_reasc.langchain_internals import (
    configured_keys,
    is_configurable_model,
    provider_class,
    validates_by_functions,
)

PACKAGE = Path(langchain_reasc.__file__).parent
CHANGED = f"langchain-core {version('langchain-core')} changed what langchain_internals.py rests on: "
FUNCTIONS = {
    _utils._filter_invocation_params_for_tracing: ["params"],
    chat_models._format_for_tracing: ["messages"],
    chat_models._format_ls_structured_output: ["ls_structured_output_format"],
    BaseChatModel._get_invocation_params: ["self", "stop", "kwargs"],
    BaseChatModel._get_ls_params: ["self", "stop", "kwargs"],
    BaseChatModel._get_ls_params_with_defaults: ["self", "stop", "kwargs"],
}
HOOKS = {"_generate", "_agenerate", "_stream", "_astream", "_llm_type", "_identifying_params"}
"""What LangChain asks authors of chat models to define."""
OVERRIDDEN = {"_generate_with_cache", "_agenerate_with_cache", "_get_ls_params"}
"""What our own chat models define besides; :func:`uses` counts no ``super()``."""


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions_take_what_they_took(function: object) -> None:
    taken = list(inspect.signature(function).parameters)  # type: ignore[arg-type]
    assert taken == FUNCTIONS[function], f"{CHANGED}{function} takes other arguments"  # type: ignore[index]


def test_names_are_there() -> None:
    message = FakeListChatModel(responses=["x"]).invoke("q")
    assert str(message.id).startswith(f"{utils.LC_ID_PREFIX}-"), f"{CHANGED}messages are named otherwise"
    assert isinstance(tracing._configure_hooks, list) and tracing.tracing_v2_callback_var, CHANGED
    assert {"handle_event", "ahandle_event"} <= vars(callbacks).keys(), f"{CHANGED}handlers are called otherwise"
    assert vars(BaseChatModel).keys() >= OVERRIDDEN, f"{CHANGED}hooks of BaseChatModel are gone"
    assert isinstance(FakeListChatModel(responses=[])._serialized, dict), CHANGED


def test_pydantic_says_which_classes_validate_by_functions() -> None:
    class Checked(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            return value

    class Plain(BaseModel):
        x: int

    assert validates_by_functions(Checked) and not validates_by_functions(Plain)
    assert Plain(x=1).__pydantic_private__ is None


def test_what_init_chat_model_returns() -> None:
    init_chat_model = pytest.importorskip("langchain.chat_models").init_chat_model
    model = init_chat_model(configurable_fields=["model", "temperature"], config_prefix="first")
    assert is_configurable_model(model) and callable(model._model)
    assert configured_keys(model) == {"first_model", "first_temperature"}
    assert configured_keys(init_chat_model("gpt-4o", model_provider="openai", configurable_fields="any")) is None
    assert provider_class("openai") is pytest.importorskip("langchain_openai").ChatOpenAI


@pytest.mark.full
def test_nothing_else_in_the_core_uses_private_names() -> None:
    private = {name for name in dir(BaseChatModel) if name.startswith("_") and not name.endswith("__")} - HOOKS
    used = {f"{file.relative_to(PACKAGE)}:{line}": name for file, line, name in uses(private)}
    assert {place.partition(":")[0] for place in used} == {"langchain_internals.py"}, used


def uses(private: set[str]) -> Iterator[tuple[Path, int, str]]:
    """Private members of chat models and of pydantic's classes that are asked for, and private names imported."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and not _own(node.value):
                if node.attr in private or node.attr in ("__pydantic_private__", "__pydantic_core_schema__"):
                    yield file, node.lineno, node.attr
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("langchain_core", "pydantic")):
                names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
                yield from ((file, node.lineno, name) for name in names if name.startswith(("_", "LC_")))


def _own(value: ast.expr) -> bool:
    """Whether it is ``self`` or ``super()`` that is asked."""
    asked = value.func if isinstance(value, ast.Call) else value
    return isinstance(asked, ast.Name) and asked.id in ("self", "super", "cls")
