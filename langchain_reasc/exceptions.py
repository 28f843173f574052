"""Every error this library raises on purpose.

ReASCError
├── ConfigurationError      (also ValueError)   a wrong option, name or combination
├── LogprobsUnavailable                         no confidence could be read from a response
├── ConfidenceError         (also ValueError)   empty or non-finite token signals
├── CalibrationError
│   ├── CalibrationDataError (also ValueError)  data from which nothing can be calibrated
│   ├── CalibrationFileError                    unreadable, incomplete or invalid file
│   └── FingerprintMismatch                     calibrated on something else than what runs
├── SamplingError                               no response could be had; see ``failures``
│   └── SampleTimeout       (also TimeoutError) a sample, or its question, took longer than it may
├── ServerError                                 a model server that cannot be reached, or serves nothing
├── PoolError               (also ValueError)   a recorded pool that cannot be read
├── MissingExtraError       (also ImportError)  an optional dependency; names the extra
└── ModelError                                  a local model
    ├── ModelFileError                          missing, not a GGUF, truncated, no chat template
    ├── ContextOverflowError (also ValueError)  a prompt that does not fit the context
    ├── UnsupportedProcessorError               llama.cpp was built for another processor
    └── ModelClosedError                        used after ``close()``
"""

from collections.abc import Sequence

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
    "ServerError",
    "UnsupportedProcessorError",
    "missing_extra",
]


class ReASCError(Exception):
    """Base of every error raised by langchain-reasc."""


class ConfigurationError(ReASCError, ValueError):
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


class FingerprintMismatch(CalibrationError):
    """The calibration was measured on another model, prompt or sampling than the one in use."""


class SamplingError(ReASCError):
    """No response could be obtained from the model.

    Attributes:
        failures: what each failed sample raised, in launch order.
    """

    def __init__(self, message: str, failures: Sequence[BaseException] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)


class SampleTimeout(SamplingError, TimeoutError):
    """A sample was cut off because it, or its question, took longer than it may."""


class ServerError(ReASCError):
    """A model server cannot be reached, refuses the key, or gives no response."""


class PoolError(ReASCError, ValueError):
    """A recorded pool is missing, malformed, or lacks what was asked of it."""


class MissingExtraError(ReASCError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class ModelError(ReASCError):
    """Base of what can go wrong with a local model."""


class ModelFileError(ModelError):
    """A model file is missing, is not a GGUF, is truncated, or lacks what chat needs."""


class ContextOverflowError(ModelError, ValueError):
    """A prompt does not fit the model's context."""


class UnsupportedProcessorError(ModelError):
    """The installed llama.cpp would end the process on this processor; the message says why, and how to build it."""


class ModelClosedError(ModelError):
    """A model was used after it was closed, or its context is gone."""


def missing_extra(extra: str, package: str) -> MissingExtraError:
    """Build the error that names the extra which brings ``package``."""
    return MissingExtraError(
        f"{package} is not installed. Install it with: pip install 'langchain-reasc[{extra}]'", name=package
    )
