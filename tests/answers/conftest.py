"""Every test with a ``runner`` runs synchronously and in an event loop."""

from runnable.conftest import runner

__all__ = ["runner"]
