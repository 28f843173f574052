"""Lazy imports: a package imports a public name from its module on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package whose modules are
    imported when they are needed.

    Args:
        package: its ``__name__``.
        modules: module, below the package -> the names that it brings, with spaces
            between.
    """
    module_of = {
        name: module for module, names in modules.items() for name in names.split()
    }

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        attribute = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, attribute)
        return attribute

    return get, lambda: sorted({*vars(sys.modules[package]), *module_of})
