"""The errors that this library raises.

ReASCError                      (also core's ModelError)
├── ConfigurationError          (also ValueError, core's ModelInvalidRequestError)   a wrong option, name or combination
├── LogprobsUnavailable         a response has no usable token probabilities
├── ConfidenceError             (also ValueError)   empty or non-finite token signals
├── CalibrationError
│   ├── CalibrationDataError    (also ValueError)   data from which nothing can be calibrated
│   ├── CalibrationFileError    unreadable, incomplete or invalid file
│   └── FingerprintMismatch     (also core's ModelInvalidRequestError)   calibrated on something else than what runs
├── SamplingError               no response could be had; see ``failures``
│   └── SampleTimeout           (also TimeoutError, core's ModelTimeoutError)   a sample or a question took too long
├── NoVote                      no response names an answer that counts; see ``responses``
├── Undecided                   the budget was spent before the evidence was sufficient; see ``result``
├── ServerError                 a model server serves nothing
│   ├── ServerUnreachable       (also core's ModelConnectionError)   nothing answers at its address
│   ├── ServerBusy              (also core's ModelAPIError)   it answers, and may serve a later request
│   └── ServerRefused           (also core's ModelAuthenticationError)   it refuses the API key
├── PoolError                   (also ValueError)   a recorded pool that cannot be read
├── MissingExtraError           (also ImportError)   an optional dependency; names the extra
└── ModelError                  a local model
    ├── ModelFileError          (also core's ModelNotFoundError)   missing, not a GGUF, truncated, no chat template
    ├── ContextOverflowError    (also ValueError, core's own)   a prompt that does not fit the context
    ├── UnsupportedProcessorError   llama.cpp was built for another processor
    └── ModelClosedError        used after ``close()``

"Core" is langchain-core, whose ``ModelError.is_retryable`` says whether the same call may succeed another time.
LangChain's retries repeat, and pay for, every other kind of error. So all of ours derive from it, and are not
retryable, except SampleTimeout, ServerUnreachable, ServerBusy, and a SamplingError of which one failure is.
"""

import pickle
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core import exceptions as core

from langchain_reasc.notebooks import ShortTraceback

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

__all__ = [
    "CalibrationDataError",
    "CalibrationError",
    "CalibrationFileError",
    "ConfidenceError",
    "ConfigurationError",
    "ContextOverflowError",
    "FingerprintMismatch",
    "LogprobsUnavailable",
    "MissingExtraError",
    "ModelClosedError",
    "ModelError",
    "ModelFileError",
    "NoVote",
    "PoolError",
    "ReASCError",
    "SampleTimeout",
    "SamplingError",
    "ServerBusy",
    "ServerError",
    "ServerRefused",
    "ServerUnreachable",
    "Undecided",
    "UnsupportedProcessorError",
    "explains_itself",
    "how_to_install",
    "is_control_flow",
    "missing_extra",
    "portable",
    "root_of",
    "will_recur",
]

_REFUSALS = (401, 403, 404, 409, 422, 429, 503)
"""HTTP statuses with which a server refuses the next request, too."""


class ReASCError(ShortTraceback, core.ModelError):
    """Base of every error raised by langchain-reasc.

    Attributes:
        is_retryable: whether the same call may succeed another time.
    """


class ConfigurationError(ReASCError, core.ModelInvalidRequestError, ValueError):
    """An option has a wrong value, or two options contradict each other."""


class LogprobsUnavailable(ReASCError):
    """A response carries no usable token probabilities."""


class ConfidenceError(ReASCError, ValueError):
    """Token signals are empty, of the wrong shape, or not finite."""


class CalibrationError(ReASCError):
    """Base of what can go wrong with a calibration."""


class CalibrationDataError(CalibrationError, ValueError):
    """The calibration responses do not determine a calibration."""


class CalibrationFileError(CalibrationError):
    """A calibration file is missing, incomplete or invalid. The file is left as it was."""


class FingerprintMismatch(CalibrationError, core.ModelInvalidRequestError):
    """The calibration was measured on another model, prompt or sampling than the one in use."""


class SamplingError(ReASCError):
    """No sample gave a response.

    Attributes:
        failures: what each failed sample raised, in launch order.
        is_retryable: whether one of them may succeed another time; without failures, True.
    """

    is_retryable = True

    def __init__(self, message: str, failures: Sequence[BaseException] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)
        self.is_retryable = any(map(_is_retryable, failures)) if failures else type(self).is_retryable

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it with such failures as can be pickled; the others come out as a SamplingError that quotes them."""
        state = {**self.__dict__, "failures": tuple(map(portable, self.failures))}
        return type(self), self.args, state


class SampleTimeout(SamplingError, core.ModelTimeoutError, TimeoutError):
    """A sample was cut off because it, or its question, took longer than it may."""


class NoVote(ReASCError):
    """No response names an answer that counts.

    Attributes:
        responses: the messages, which are paid for.
    """

    def __init__(self, message: str, responses: "Sequence[BaseMessage]" = ()) -> None:
        super().__init__(message)
        self.responses = tuple(responses)


class Undecided(ReASCError):
    """The budget or the time was spent before the evidence was sufficient, and ``on_undecided="raise"`` was set.

    Attributes:
        result: the :class:`~langchain_reasc.ReASCResult`: the best answer so far, the evidence, every response.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class ServerError(ReASCError):
    """A model server cannot be reached, refuses the key, or gives no response."""


class ServerUnreachable(ServerError, core.ModelConnectionError):
    """Nothing answers at the address of a model server."""

    is_retryable = True


class ServerBusy(ServerError, core.ModelAPIError):
    """A model server answers, but cannot serve the request now.

    Attributes:
        retry_after: seconds to wait before the next request, where they are known.
    """

    is_retryable = True
    retry_after: float | None = None


class ServerRefused(ServerError, core.ModelAuthenticationError):
    """A model server requires an API key, or refuses the one it was given."""


class PoolError(ReASCError, ValueError):
    """A recorded pool is missing, malformed, or lacks what is needed."""


class MissingExtraError(ReASCError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class ModelError(ReASCError):
    """Base of what can go wrong with a local model."""


class ModelFileError(ModelError, core.ModelNotFoundError):
    """A model file is missing, is not a GGUF, is truncated, or lacks what chat needs."""


class ContextOverflowError(ModelError, core.ContextOverflowError, ValueError):
    """A prompt does not fit the model's context."""


class UnsupportedProcessorError(ModelError):
    """The installed llama.cpp would crash on this processor; the message says why, and how to build it."""


class ModelClosedError(ModelError):
    """A model was used after it was closed, or its context is gone."""


def missing_extra(extra: str, package: str) -> MissingExtraError:
    """Return the error that names the extra which brings ``package``."""
    return MissingExtraError(f"{package} is not installed. {how_to_install(extra)}", name=package)


def how_to_install(extra: str) -> str:
    """Return the sentence that says how to install an extra."""
    return f'Install it with: pip install "langchain-reasc[{extra}]"'


def will_recur(error: BaseException | None) -> bool:
    """Return whether the next sample of the question would fail alike.

    So does one of our errors about options or data, and a server's refusal, after which a provider's client has tried
    again where that may help. A call of a tool that its server cannot read (400) may be the one bad response.
    """
    if isinstance(error, ReASCError):
        return not isinstance(error, SamplingError)
    return getattr(error, "status_code", None) in _REFUSALS


def is_control_flow(error: BaseException) -> bool:
    """Return whether this is how LangGraph leaves a node, as by ``interrupt()``, and so no failure."""
    langgraph = sys.modules.get("langgraph.errors")  # who raises such has imported it
    return langgraph is not None and isinstance(error, langgraph.GraphBubbleUp)


def root_of(error: BaseException) -> BaseException:
    """Return the first error in the chain of causes of an error."""
    seen = [error]
    while (cause := seen[-1].__cause__ or seen[-1].__context__) is not None and cause not in seen:
        seen.append(cause)
    return seen[-1]


def explains_itself(error: BaseException) -> bool:
    """Return whether its message is enough: langchain-core has classified it, or a server or file is out of reach."""
    return isinstance(error, core.ModelError) or isinstance(root_of(error), OSError)


def _is_retryable(failure: BaseException) -> bool:
    """Return whether LangChain's retries would repeat it, as they do errors of no known kind."""
    return failure.is_retryable if isinstance(failure, core.ModelError) else isinstance(failure, Exception)


def portable(failure: BaseException) -> BaseException:
    """Return the error, or one that quotes it if it cannot be pickled (as those of openai's client)."""
    try:
        pickle.loads(pickle.dumps(failure))
    except Exception:
        quoted = SamplingError(f"{type(failure).__name__}: {failure}")
        quoted.is_retryable = _is_retryable(failure)
        return quoted
    return failure
