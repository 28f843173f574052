"""LangChain's own tests for chat model integrations."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumpd, load
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_tests.unit_tests import ChatModelUnitTests

from backends.llama_cpp.random_model import OPTIONS, RandomModelTests
from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ConfigurationError

pytestmark = pytest.mark.full


class TestChatLlamaCpp(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatLlamaCpp

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {"temperature": 0, "max_tokens": 100, "stop": ["never"]}

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"seed": 1}

    @pytest.mark.xfail(reason="a loaded file is not exchanged by naming another; see the test below", strict=True)
    def test_standard_params_model_override(self, model: BaseChatModel) -> None:
        super().test_standard_params_model_override(model)

    @pytest.mark.xfail(reason="a stored snapshot would hold langchain-core's version; see the test below", strict=True)
    def test_serdes(self, model: BaseChatModel, snapshot: Any) -> None:
        super().test_serdes(model, snapshot)


@pytest.fixture(scope="module")
def terse_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("terse") / "terse.gguf", context=8192)


class TestRandomModel(RandomModelTests):
    @pytest.fixture(autouse=True)
    def _paths(self, terse_path: Path) -> None:
        self.path = terse_path

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatLlamaCpp

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model_path": self.path, **OPTIONS}


def test_naming_another_model_is_refused(shipped: ChatLlamaCpp) -> None:
    with pytest.raises(ConfigurationError, match="unknown argument 'model'"):
        shipped.invoke("hi", model="another")


@pytest.mark.filterwarnings("ignore:The function `load` is in beta")
def test_the_configuration_is_serialised_and_read_again(tiny_path: Path) -> None:
    with ChatLlamaCpp(model_path=tiny_path, temperature=0.5, seed=3) as model:
        dumped = dumpd(model)
        assert dumped["kwargs"].items() >= {"model_path": str(tiny_path), "temperature": 0.5, "seed": 3}.items()
        with load(dumped, valid_namespaces=["langchain_reasc_llama_cpp"], allowed_objects=[ChatLlamaCpp]) as again:
            assert again._identifying_params == model._identifying_params
            assert again.temperature == 0.5
