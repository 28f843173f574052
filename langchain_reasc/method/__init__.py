"""The method, pure: from token signals to a decision. It knows numbers and answers, nothing of LangChain or models.

``token_signals`` → ``confidence`` (one score per response) → ``evidence`` (how much a response counts) → ``stopping``
(go on or stop). ``horizon``, ``bayesian_vote`` and ``agreement`` are further rules, ``registry`` has all by name;
``fields`` and ``hopeless`` decide on answers in parts. All their public names can be imported from here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

_MODULES: Final = (
    "decision",
    "evidence",
    "stopping",
    "horizon",
    "bayesian_vote",
    "agreement",
    "registry",
    "fields",
    "hopeless",
    "confidence",
    "token_signals",
)

if TYPE_CHECKING:
    from langchain_reasc.method.agreement import *  # noqa: F403
    from langchain_reasc.method.bayesian_vote import *  # noqa: F403
    from langchain_reasc.method.confidence import *  # noqa: F403
    from langchain_reasc.method.decision import *  # noqa: F403
    from langchain_reasc.method.evidence import *  # noqa: F403
    from langchain_reasc.method.fields import *  # noqa: F403
    from langchain_reasc.method.hopeless import *  # noqa: F403
    from langchain_reasc.method.horizon import *  # noqa: F403
    from langchain_reasc.method.registry import *  # noqa: F403
    from langchain_reasc.method.stopping import *  # noqa: F403
    from langchain_reasc.method.token_signals import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:  # a backend alone needs few of the modules
        for module in () if name.startswith("_") or name in _MODULES else _MODULES:
            found = import_module(f"{__name__}.{module}")
            if name in found.__all__:
                globals()[name] = getattr(found, name)
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
