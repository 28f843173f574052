"""The method as pure functions, from token signals to a decision, without LangChain or
models.

``token_signals`` → ``confidence`` (one score per response) → ``evidence`` (the weight
of a response) → ``stopping`` (continue or stop). ``horizon``, ``agreement`` (with
``score_model``) and ``race`` are further rules, and ``registry`` finds rules by name. ``fields`` and
``never_agrees`` decide on answers in parts. Import all public names from here.
"""

from langchain_reasc.method.agreement import *  # noqa: F403
from langchain_reasc.method.confidence import *  # noqa: F403
from langchain_reasc.method.decision import *  # noqa: F403
from langchain_reasc.method.evidence import *  # noqa: F403
from langchain_reasc.method.fields import *  # noqa: F403
from langchain_reasc.method.horizon import *  # noqa: F403
from langchain_reasc.method.never_agrees import *  # noqa: F403
from langchain_reasc.method.race import *  # noqa: F403
from langchain_reasc.method.registry import *  # noqa: F403
from langchain_reasc.method.score_model import *  # noqa: F403
from langchain_reasc.method.stopping import *  # noqa: F403
from langchain_reasc.method.token_signals import *  # noqa: F403
