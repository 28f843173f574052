"""``help()`` names every option of the public classes, with its default, above what is inherited."""

import inspect
import pydoc
import re

import pytest
from langchain_core.language_models import BaseChatModel

from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable


def shown(cls: type) -> str:
    """The docstring of a class, which ``help()`` shows first."""
    text = pydoc.plain(pydoc.render_doc(cls)).split("Method resolution order:")[0]
    return re.sub(r"\n \| *", " ", text)


@pytest.mark.parametrize("cls", [ReASCRunnable, ChatReASC])
def test_help_names_every_option_with_default_and_meaning(cls: type[ReASCRunnable] | type[ChatReASC]) -> None:
    text = shown(cls)
    own = {name: field for name, field in cls.model_fields.items() if field.description}
    assert cls.model_fields.keys() - own.keys() <= BaseChatModel.model_fields.keys()
    for name, field in own.items():
        if field.is_required():
            default = "required"
        else:
            default = "default " + repr(field.get_default(call_default_factory=True)).split("(")[0]
        assert f"{name} ({default}" in text, name
        assert " ".join((field.description or "").split()) in text, name


def test_help_of_the_middleware_names_its_own_options_and_those_of_each_call() -> None:
    text = shown(ReASCMiddleware)
    own = set(inspect.signature(ReASCMiddleware).parameters) - {"options"}
    calls = ReASCRunnable.model_fields.keys() - {"model", "name"}
    assert len(own) == 6 and not {name for name in own if f" {name}: " not in text}
    assert not {name for name in calls if f" {name} (default " not in text}


@pytest.mark.parametrize("unit", ["Seconds that a sample may take", "The most samples per question"])
def test_help_says_units(unit: str) -> None:
    assert unit in shown(ReASCRunnable)


def test_help_of_a_subclass_shows_the_options_too() -> None:
    class Logged(ReASCRunnable):
        """Writes a log."""

    text = shown(Logged)
    assert "Writes a log." in text and "max_samples (default 16)" in text
