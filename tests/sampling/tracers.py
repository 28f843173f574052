"""Who listens to runs: what they are told, and what LangSmith would be sent."""

from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers import LangChainTracer
from langchain_core.tracers.schemas import Run


class Runs(BaseCallbackHandler):
    """Every run: its parent, kind, name, tags, metadata, and how it ended."""

    run_inline = True

    def __init__(self) -> None:
        self.runs: dict[UUID, dict[str, Any]] = {}
        self.ended: dict[UUID, str] = {}

    def _start(self, kind: str, run_id: UUID, kwargs: dict[str, Any]) -> None:
        self.runs[run_id] = {"kind": kind, **kwargs}

    def on_chain_start(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._start("chain", run_id, kwargs)

    def on_chat_model_start(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._start("model", run_id, kwargs)

    def on_chain_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self.ended[run_id] = "end"

    def on_chain_error(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self.ended[run_id] = "error"

    on_llm_end, on_llm_error = on_chain_end, on_chain_error

    def of(self, kind: str) -> dict[UUID, dict[str, Any]]:
        return {run_id: run for run_id, run in self.runs.items() if run["kind"] == kind}


class Kept(LangChainTracer):
    """Keeps what would be sent to LangSmith; LangChain makes copies of it."""

    sent: list[Run] = []  # noqa: RUF012

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**fields, "client": object()})

    def _persist_run_single(self, run: Run) -> None:
        self.sent.append(run)

    def _update_run_single(self, run: Run) -> None:  # type: ignore[override]
        pass
