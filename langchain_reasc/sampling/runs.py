"""A traced run, open for as long as what it stands for goes on: the answering of an input, or a sample."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
    patch_config,
    set_config_context,
)
from langchain_core.runnables.utils import coro_with_context

__all__ = ["AsyncRun", "Run"]

T = TypeVar("T")


class Run:
    """A run from its start to its end, with any number of steps between.

    ``Runnable._call_with_config`` does the same for a run of one step; in a batch that calibrates on all first
    responses, each input has two, and waits for the others between them.

    Attributes:
        config: the config for what happens below the run.
    """

    def __init__(self, name: str, value: Any, config: RunnableConfig | None) -> None:
        config = ensure_config(config)
        self._manager = get_callback_manager_for_config(config).on_chain_start(
            None, value, run_type="chain", name=config.get("run_name") or name, run_id=config.pop("run_id", None)
        )
        self.config = patch_config(config, callbacks=self._manager.get_child())
        self._open = True

    def step(self, what: Callable[[RunnableConfig], T]) -> T:
        """Do something below the run; an error ends it."""
        try:
            with set_config_context(self.config) as context:
                return context.run(what, self.config)
        except BaseException as error:
            self.fail(error)
            raise

    def last(self, what: Callable[[RunnableConfig], T]) -> T:
        """The step that ends the run, with what it gives."""
        output = self.step(what)
        self.end(output)
        return output

    def end(self, output: Any) -> None:
        """End the run with what it gave."""
        self._open = False
        self._manager.on_chain_end(output)

    def fail(self, error: BaseException) -> None:
        """End the run, if it has not ended."""
        if self._open:
            self._open = False
            self._manager.on_chain_error(error)


class AsyncRun:
    """The asynchronous :class:`Run`; it begins with its first step."""

    def __init__(self, name: str, value: Any, config: RunnableConfig | None) -> None:
        self._name, self._value, self._config = name, value, ensure_config(config)
        self._manager: Any = None
        self._open = True

    async def begin(self) -> None:
        """Tell of the run, if that has not been done."""
        if self._manager is None:
            self._manager = await get_async_callback_manager_for_config(self._config).on_chain_start(
                None,
                self._value,
                run_type="chain",
                name=self._config.get("run_name") or self._name,
                run_id=self._config.pop("run_id", None),
            )

    async def step(self, what: Callable[[RunnableConfig], Coroutine[Any, Any, T]]) -> T:
        """Do something below the run; an error ends it."""
        await self.begin()
        below = patch_config(self._config, callbacks=self._manager.get_child())
        try:
            with set_config_context(below) as context:
                return await coro_with_context(what(below), context)
        except BaseException as error:
            await self.fail(error)
            raise

    async def last(self, what: Callable[[RunnableConfig], Coroutine[Any, Any, T]]) -> T:
        """The step that ends the run, with what it gives."""
        output = await self.step(what)
        await self.end(output)
        return output

    async def end(self, output: Any) -> None:
        """End the run with what it gave."""
        self._open = False
        await self._manager.on_chain_end(output)

    async def fail(self, error: BaseException) -> None:
        """End the run, if it has begun and not ended."""
        if self._open and self._manager is not None:
            self._open = False
            await self._manager.on_chain_error(error)
