"""The errors that this library raises.

ReASCError                      (also core's ModelError)
├── ConfigurationError          (also ValueError, core's ModelInvalidRequestError)   a wrong option, name or combination
├── LogprobsUnavailable         a response has no usable token probabilities
├── ConfidenceError             (also ValueError)   empty or non-finite token signals
├── CalibrationError
│   ├── CalibrationDataError    (also ValueError)   data from which nothing can be calibrated
│   ├── CalibrationFileError    unreadable, incomplete or invalid file
│   └── FingerprintMismatch     (also core's ModelInvalidRequestError)   calibrated on something else than what runs
├── SamplingError               no sample gave a response; see ``failures``
│   └── SampleTimeout           (also TimeoutError, core's ModelTimeoutError)   a sample or a question took too long
├── Undecided                   the evidence for one answer was not sufficient; see ``result``
├── ServerError                 a model server cannot be used
│   ├── ServerUnreachable       (also core's ModelConnectionError)   nothing answers at its address
│   ├── ServerBusy              (also core's ModelAPIError)   it answers, and may serve a later request
│   ├── ServerTimeout           (also TimeoutError, core's ModelTimeoutError)   it accepts requests, and does not answer
│   ├── ServerMismatch          (also ConfigurationError)   it does not have the named model, or another has another one
│   └── ServerRefused           (also core's ModelAuthenticationError)   it refuses the API key
├── PoolError                   (also ValueError)   a recorded pool that cannot be read
├── MissingExtraError           (also ImportError)   an optional dependency; names the extra
└── ModelError                  a local model
    ├── ModelFileError          (also core's ModelNotFoundError)   missing, not a GGUF, truncated, no chat template
    ├── ContextOverflowError    (also ValueError, core's own)   a prompt that does not fit the context
    ├── UnsupportedProcessorError   llama.cpp was built for another processor
    └── ModelClosedError        used after ``close()``

"Core" is langchain-core, whose ``ModelError.is_retryable`` says whether the same call may succeed another time.
LangChain's retries repeat (and pay for) errors of any other class. So all errors here derive from it, and are not
retryable, except SampleTimeout, ServerUnreachable, ServerBusy, ServerTimeout, and a SamplingError with a retryable
failure.
"""

import pickle
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core import exceptions as core

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
    "PoolError",
    "ReASCError",
    "SampleTimeout",
    "SamplingError",
    "ServerBusy",
    "ServerError",
    "ServerMismatch",
    "ServerRefused",
    "ServerTimeout",
    "ServerUnreachable",
    "Undecided",
    "UnsupportedProcessorError",
    "explains_itself",
    "how_to_install",
    "is_control_flow",
    "missing_extra",
    "portable",
    "reason_of",
    "root_of",
    "will_recur",
]

_REFUSALS = (401, 403, 404, 409, 422, 429, 503)
"""HTTP statuses after which the server would also refuse the next request."""


class ReASCError(core.ModelError):
    """Base of every error raised by langchain-reasc.

    What to do: read the message, which says what was wrong, with which value. Catch this
    class to catch them all.

    Attributes:
        is_retryable: whether the same call may succeed another time.
    """


class ConfigurationError(ReASCError, core.ModelInvalidRequestError, ValueError):
    """An option has a wrong value, or two options contradict each other.

    What to do: correct the option that the message names. ``help()`` of the class lists
    its options.
    """


class LogprobsUnavailable(ReASCError):
    """A response has no usable token probabilities.

    What to do: use a model that returns log-probabilities, count votes instead
    (``on_missing_confidence="count"``), or let the model state its confidence
    (``calibrate(ask_confidence=True)``).
    """


class ConfidenceError(ReASCError, ValueError):
    """Token signals are empty, of the wrong shape, or not finite.

    What to do: look for the fault in the model, or in what computed the signals: the
    message says which number is odd. ``on_missing_confidence="count"`` counts such
    responses as one vote each.
    """


class CalibrationError(ReASCError):
    """Base of errors about calibrations.

    What to do: look up the class that was raised, which is derived from this one.
    """


class CalibrationDataError(CalibrationError, ValueError):
    """A calibration cannot be made from these responses.

    What to do: ask more questions, 64 or more. Check that the model samples
    (temperature above 0), and that its answers are found (``answer=``).
    """


class CalibrationFileError(CalibrationError):
    """A calibration file is missing, incomplete or invalid. The file is not changed.

    What to do: correct the path, or make the file again with ``reasc calibrate``.
    ``calibration=None`` counts votes without a file.
    """


class FingerprintMismatch(CalibrationError, core.ModelInvalidRequestError):
    """The calibration was measured on another model, prompt or sampling than the one in
    use.

    What to do: undo the difference that the message names, or calibrate again. Only if
    it does not matter, set ``allow_fingerprint_mismatch=True``.
    """


class SamplingError(ReASCError):
    """No sample gave a response.

    What to do: look at ``failures``, which says what was wrong with the model or its
    server. ``is_retryable`` is False if no failure is worth a retry, as with a wrong key.

    Attributes:
        failures: the errors of the failed samples, in launch order.
        is_retryable: whether one of the samples may succeed another time; True if there
            are no failures.
    """

    is_retryable = True

    def __init__(self, message: str, failures: Sequence[BaseException] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)
        if failures:
            self.is_retryable = any(map(_is_retryable, failures))
        else:
            self.is_retryable = type(self).is_retryable

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error. Failures that cannot be pickled are replaced by a
        SamplingError that quotes them.
        """
        state = {**self.__dict__, "failures": tuple(map(portable, self.failures))}
        return type(self), self.args, state


class SampleTimeout(SamplingError, core.ModelTimeoutError, TimeoutError):
    """A sample was cut off because the sample or its question took too long.

    What to do: allow more time (``sample_timeout``, ``timeout``), or let the model write
    less (its ``max_tokens``).
    """


class Undecided(ReASCError):
    """The evidence for one answer was not sufficient, and ``on_undecided="raise"`` was
    set.

    What to do: take the best answer so far from ``result``, or ask a person. More
    samples (``max_samples``) or time (``timeout``) decide more questions.

    Attributes:
        result: the :class:`~langchain_reasc.ReASCResult` with the best answer so far,
            the evidence, and every response.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class ServerError(ReASCError):
    """A model server cannot be reached, refuses the key, or gives no response.

    What to do: correct the address (``base_url``, ``--url``) if the message names another
    one. ``reasc probe URL`` tells what a server supports.
    """


class ServerUnreachable(ServerError, core.ModelConnectionError):
    """Nothing answers at the address of a model server.

    What to do: start the server, or correct its address (``base_url``, ``--url``).
    """

    is_retryable = True


class ServerBusy(ServerError, core.ModelAPIError):
    """A model server answers, but cannot serve the request now.

    What to do: call again after ``retry_after`` seconds, with fewer requests at once
    (``concurrency``), or add a server.

    Attributes:
        retry_after: seconds to wait before the next request, or None if unknown.
    """

    is_retryable = True
    retry_after: float | None = None


class ServerMismatch(ServerError, ConfigurationError):
    """A model server does not have the named model, or several servers have different
    models.

    What to do: write the model's name as the server lists it, or give each model a chat
    model of its own.
    """


class ServerTimeout(ServerError, core.ModelTimeoutError, TimeoutError):
    """A model server accepts requests, and does not answer within the time that they
    have.

    What to do: wait until the server has loaded its model, or allow more time
    (``timeout`` of the chat model).
    """

    is_retryable = True


class ServerRefused(ServerError, core.ModelAuthenticationError):
    """A model server requires an API key, or refuses the given key.

    What to do: give the server's key (``api_key=``, or ``--key-variable`` of a command).
    """


class PoolError(ReASCError, ValueError):
    """A recorded pool is missing, malformed, or lacks required data.

    What to do: correct the path, or record again with ``reasc record``. A pool of another
    format can be imported with ``reasc pool import``.
    """


class MissingExtraError(ReASCError, ImportError):
    """An optional dependency is not installed. The message names the extra to install.

    What to do: run the command in the message, in an installation from a checkout, too.
    """


class ModelError(ReASCError):
    """Base of errors about local models.

    What to do: read llama.cpp's reason in the message. If memory is short, make ``n_ctx``
    or ``n_cells`` smaller.
    """


class ModelFileError(ModelError, core.ModelNotFoundError):
    """A model file is missing, not a GGUF, truncated, or has no chat template.

    What to do: correct the path, or download the file again. A base model needs
    ``chat_template=``.
    """


class ContextOverflowError(ModelError, core.ContextOverflowError, ValueError):
    """A prompt does not fit the model's context.

    What to do: shorten the prompt, load the model with a larger ``n_ctx``, or let it drop
    the oldest turns (``on_overflow="truncate"``).
    """


class UnsupportedProcessorError(ModelError):
    """The installed llama.cpp would crash on this processor. The message says why, and
    how to rebuild it.

    What to do: build llama.cpp on this machine, with the command in the message.
    """


class ModelClosedError(ModelError):
    """A model was used after it was closed.

    What to do: make a new model, after a fork in the new process.
    """


def missing_extra(extra: str, package: str) -> MissingExtraError:
    """Build the error for a missing package, which names the extra to install."""
    return MissingExtraError(
        f"{package} is not installed. {how_to_install(extra)}", name=package
    )


def how_to_install(extra: str) -> str:
    """Return the sentence that says how to install an extra."""
    return f"Install it with: {pip_install(extra)}"


def pip_install(extra: str) -> str:
    """Return the command that installs an extra. Where this package is installed from a
    checkout, the command needs no other source of it.
    """
    return f'pip install "langchain-reasc[{extra}]"'


def will_recur(error: BaseException | None) -> bool:
    """Return whether the next sample of the question would fail in the same way.

    This is so for our errors about options or data, and for a server's refusal (a
    provider's client has already retried where that may help). But a tool call that the
    server cannot read (400) may be a single bad response.
    """
    if isinstance(error, ReASCError):
        return not isinstance(error, SamplingError)
    return getattr(error, "status_code", None) in _REFUSALS


def is_control_flow(error: BaseException) -> bool:
    """Return whether LangGraph leaves a node by this exception, as ``interrupt()``
    does. That is not a failure.
    """
    langgraph = sys.modules.get("langgraph.errors")  # who raises such has imported it
    return langgraph is not None and isinstance(error, langgraph.GraphBubbleUp)


def root_of(error: BaseException) -> BaseException:
    """Return the first error in an error's chain of causes."""
    chain = [error]
    while (
        cause := chain[-1].__cause__ or chain[-1].__context__
    ) is not None and cause not in chain:
        chain.append(cause)
    return chain[-1]


def reason_of(error: BaseException) -> str:
    """Return a word for why a model failed, for counting: ``timeout``, ``unreachable``,
    an HTTP status, or a class.
    """
    if isinstance(error, SamplingError) and error.failures:
        first = error.failures[0]
    else:
        first = error
    status = getattr(first, "status_code", None) or getattr(
        getattr(first, "response", None), "status_code", None
    )
    # before the classes, as the errors of requests are of OSError
    if isinstance(status, int):
        return str(status)
    if isinstance(first, core.ModelTimeoutError | TimeoutError):
        return "timeout"
    if isinstance(first, core.ModelConnectionError | OSError):
        return "unreachable"
    return type(first).__name__


def explains_itself(error: BaseException) -> bool:
    """Return whether the message explains the error: langchain-core knows its class, or
    a server or file is missing.
    """
    return isinstance(error, core.ModelError) or isinstance(root_of(error), OSError)


def _is_retryable(failure: BaseException) -> bool:
    """Return whether LangChain's retries would repeat this error, as they do for
    unknown errors.
    """
    if isinstance(failure, core.ModelError):
        return failure.is_retryable
    return isinstance(failure, Exception)


def portable(failure: BaseException) -> BaseException:
    """Return the error, or one that quotes it if it cannot be pickled (such as errors
    of openai's client).
    """
    try:
        pickle.loads(pickle.dumps(failure))
    except Exception:
        quoted = SamplingError(f"{type(failure).__name__}: {failure}")
        quoted.is_retryable = _is_retryable(failure)
        return quoted
    return failure
