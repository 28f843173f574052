"""What is done with errors of samples, and of one of two models: raise, log, or tell
beside the other's error.
"""

from collections.abc import Sequence
from typing import Final

from langchain_core.exceptions import ContextOverflowError, ModelError
from pydantic import ValidationError

from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import (
    CalibrationError,
    ConfigurationError,
    LogprobsUnavailable,
    MissingExtraError,
    ModelClosedError,
    ModelFileError,
    ReASCError,
    SamplingError,
    UnsupportedProcessorError,
    explains_itself,
    reason_of,
    root_of,
)
from langchain_reasc.runnable.history import Role
from langchain_reasc.sampling import SampledResponse

_WRONG_CALL: Final = (
    ConfigurationError,
    CalibrationError,
    LogprobsUnavailable,
    MissingExtraError,
    ModelFileError,
    ModelClosedError,
    UnsupportedProcessorError,
    TypeError,
    AttributeError,
    NotImplementedError,
    ImportError,
    ValidationError,
)
"""Our errors, and those by which a provider's client refuses a call before any server
is asked.
"""


def is_wrong_call(error: Exception) -> bool:
    """Return whether the call itself is wrong, so that asking the model again would
    never help.

    A server that refuses, is busy or cannot be reached is another matter.
    """
    errors: list[BaseException] = [error]
    if type(error) is SamplingError:
        errors += error.failures
    return any(isinstance(one_error, _WRONG_CALL) for one_error in errors)


def log_failure(origin: object, role: Role, error: Exception) -> None:
    """Log that a model failed, once for each kind of failure. The text of the error may
    have secrets, and is left out.

    Args:
        origin: the large model, which the log is about.
        role: the model that failed.
        error: what it failed with.
    """
    reason = reason_of(error)
    if role == "large":
        text = (
            f"the large model (escalate_to) failed ({reason}), so the small model "
            "answers, even if its votes differ; on_undecided='raise' raises the error "
            "instead"
        )
    else:
        text = (
            f"the small model failed ({reason}), so the large model (escalate_to) "
            "answers"
        )
    notice = f"{text}. failed_because in response_metadata['reasc'] says more"
    warn_once(notice, id(origin))


def both_failed(small: Exception, large: Exception) -> Exception:
    """Return the error to raise if both models failed. It keeps its class, and also
    tells of the other.

    That is the large model's error, unless only the small one's is worth a retry.
    """
    raised = large
    text = f"the small model failed, too: {small}"
    if _is_retryable(small) and not _is_retryable(large):
        raised = small
        text = f"the large model failed, too: {large}"
    if type(raised) is not SamplingError:
        raised.add_note(text)
        return raised
    both = SamplingError(f"{raised}; {text}", raised.failures)
    both.__cause__ = raised.__cause__
    for failure in raised.failures[:1]:  # which ChatReASC raises in its place
        failure.add_note(text)
    return both


def _is_retryable(error: Exception) -> bool:
    return isinstance(error, ModelError) and error.is_retryable


def error_without_response(samples: Sequence[SampledResponse]) -> Exception:
    """Build the error for a question with no responses."""
    errors = [sample.error for sample in samples if sample.error is not None]
    if not errors:
        return SamplingError(
            f"all {len(samples)} samples were given up before they had ended"
        )
    first = errors[0]
    if isinstance(first, ReASCError) and type(first) is not SamplingError:
        # The error says it of one sample. The way through its thread says nothing more.
        return first.with_traceback(None)
    if all(isinstance(error, ContextOverflowError) for error in errors):
        # LangChain's summarizing waits for it.
        return first
    because = ""
    root = root_of(first)
    if root is not first:
        because = f" ({type(root).__name__}: {root})"
    failure = SamplingError(
        f"all {len(samples)} samples failed; the first: {first!r}{because}", errors
    )
    # a fault in somebody's code, which a traceback shows
    if not explains_itself(first):
        failure.__cause__ = first
    return failure
