"""``with`` and ``async with``, for models and streams that can be closed."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """Closed at the end of ``with`` or ``async with``."""

    @abstractmethod
    def close(self) -> None:
        """End it; a second time does nothing."""

    async def aclose(self) -> None:
        """Close, as :meth:`close` does, in ``async`` code."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
