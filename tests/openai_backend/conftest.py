"""Nothing found out about one server is left for the next test."""

from collections.abc import Iterator

import pytest
from langchain_reasc_openai.probing import forget


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "LANGSMITH_GATEWAY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    forget()
    yield
    forget()
