"""What would hold an event loop for long, and is done elsewhere: at the start, or in a thread."""

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import Final

__all__ = ["aimport_deferred", "import_deferred", "in_event_loop"]

_DEFERRED: Final = ("scipy.special", "jsonschema", "langsmith.run_helpers")
"""What the first sample, vote and decision of a process would import: together some hundred milliseconds."""
_imported = False


def in_event_loop() -> bool:
    """Whether this is called on an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def import_deferred() -> None:
    """Import what ``import langchain_reasc`` leaves for later."""
    global _imported
    if not _imported:
        for name in _DEFERRED:
            with suppress(ImportError):  # jsonschema comes with an extra
                import_module(name)
        _imported = True


async def aimport_deferred() -> None:
    """The same in a thread."""
    if not _imported:
        await asyncio.to_thread(import_deferred)
