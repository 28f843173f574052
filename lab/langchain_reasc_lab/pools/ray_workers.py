"""Record on many machines: Ray actors draw, and this process alone writes the pool.

Each actor has a few questions in flight, and is given the next one as soon as one is
complete. An actor that dies is started again, with the questions that it had. Where a
question fails nothing new is begun, as on one machine, and what is in flight is waited
for.
"""

import logging
import os
import pickle
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil
from typing import Any, Final, NamedTuple

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable

from langchain_reasc.answers import AnswerSpec
from langchain_reasc.data import Template
from langchain_reasc.exceptions import (
    ConfigurationError,
    ContextOverflowError,
    SamplingError,
    missing_extra,
    portable,
)
from langchain_reasc_lab.pools.drawing import (
    DrawnQuestion,
    PendingQuestion,
    QuestionSampler,
)

LOCAL: Final = "local"
Outcome = DrawnQuestion | ContextOverflowError
_Model = Runnable[LanguageModelInput, Any]
MakeModel = Callable[[], _Model | AbstractContextManager[_Model]]

_PATIENCE: Final = 10.0  # seconds, for a cluster to be reached
# bytes: what is under way, some megabytes for each question of long reasoning
_OBJECT_STORE: Final = 256 * 2**20
# Nothing is sent to Ray's makers, and what its processes log stays in their files.
_ENVIRONMENT: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
_DEATHS: Final = (
    3  # of workers over the same question, before it is taken to be what kills them
)


@dataclass(frozen=True)
class RayWorkers:
    """Draws responses by workers on Ray; give it to ``record_pool(workers=...)``.

    Args:
        address: "local" starts a cluster on this machine and ends it, "auto" joins the
            one that this machine belongs to, HOST:PORT another. A connection that this
            process has is used, and kept.
        count: how many workers.
        concurrency: questions that each has in flight at once.
        cpus: CPUs that each worker takes from the cluster's; next to none if it only
            waits for servers.
        gpus: GPUs that each takes, for a model in its own process.
        make_model: makes the model in each worker, from what is there, such as a key in
            its environment; it must pickle. A context is entered, and ends with the
            process. Without ``make_model``, the model is pickled with its options, keys
            included, and sent to the workers.

    Raises:
        ConfigurationError: a number is out of range.
    """

    address: str = LOCAL
    count: int = 2
    concurrency: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    make_model: MakeModel | None = None

    def __post_init__(self) -> None:
        for name, least in (("count", 1), ("concurrency", 1), ("cpus", 0), ("gpus", 0)):
            if getattr(self, name) < least:
                raise ConfigurationError(
                    f"{name} of workers must be {least} or more, got "
                    f"{getattr(self, name)}"
                )

    def __call__(
        self, pending: Sequence[PendingQuestion], sampler: QuestionSampler
    ) -> Generator[tuple[PendingQuestion, Outcome], None, None]:
        """Yield questions with their responses in the order they come.

        Raises:
            MissingExtraError: Ray is not installed.
            ConfigurationError: there is no such cluster, it has no room for a worker,
                or the model cannot be sent.
            SamplingError: a question failed, or workers died again and again. What was
                in flight came out before.
        """
        if not pending:
            return
        make = self._packed(sampler)
        with ray_cluster(self.address, cpus=self.count * self.cpus) as ray:
            there = ray.cluster_resources()
            for name, needed in (("CPU", self.cpus), ("GPU", self.gpus)):
                if there.get(name, 0) < needed:
                    raise ConfigurationError(
                        f"a worker takes {needed:g} {name}s, and the whole Ray cluster "
                        f"has {there.get(name, 0):g}"
                    )
            options = {
                "num_cpus": self.cpus,
                "num_gpus": self.gpus,
                "max_concurrency": self.concurrency,
            }
            actor = ray.remote(max_restarts=-1, max_task_retries=_DEATHS, **options)(
                _Worker
            )
            workers = [actor.remote(make) for _ in range(self.count)]
            try:
                yield from _results(ray, workers * self.concurrency, pending)
            except ray.exceptions.RayError as error:
                reason = next(iter(str(error).splitlines()), "")
                raise SamplingError(
                    f"the workers on Ray ended: {type(error).__name__}: {reason}; what "
                    "was complete is kept: run the same command again to go on"
                ) from error
            finally:
                for worker in workers if ray.is_initialized() else ():
                    ray.kill(worker)

    def _packed(self, sampler: QuestionSampler) -> bytes:
        """Pickle what makes a worker's own sampler; code that workers may not have goes
        along.
        """
        pickler, make = import_ray().cloudpickle, partial(_unchanged, sampler)
        if self.make_model is not None:
            make = partial(
                _sampler,
                self.make_model,
                sampler.prompt,
                sampler.samples,
                sampler.answer,
            )
        try:
            return bytes(pickler.dumps(make))
        except Exception as error:
            what = (
                type(sampler.model).__name__
                if self.make_model is None
                else "make_model"
            )
            raise ConfigurationError(
                f"{what} cannot be sent to workers ({type(error).__name__}: {error}); "
                "give RayWorkers(make_model=...) a function of a module that makes the "
                "model in each"
            ) from error


def import_ray() -> Any:
    """Return the package ``ray``.

    Raises:
        MissingExtraError: it is not installed.
    """
    for (
        name,
        value,
        # some of it is read when Ray is imported; what the user has set stays
    ) in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "ray") from error
    return ray


@contextmanager
def ray_cluster(address: str, *, cpus: float) -> Iterator[Any]:
    """Connect Ray to ``address`` until the block is left, unless this process is
    connected already.

    Args:
        address: "local" starts a cluster in processes of this machine, which end with
            the block or this process; "auto" joins the one that this machine belongs
            to, HOST:PORT another.
        cpus: CPUs that are to be taken. A cluster that is started has them, whatever
            the machine has: workers that wait for servers need none.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigurationError: there is no cluster.
    """
    if address.startswith("ray://"):
        raise ConfigurationError(
            f"a recording does not work through Ray's client ({address}); run the "
            "command on a machine of the cluster, with address 'auto'"
        )
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    where: dict[str, Any] = {"address": address}
    if address == LOCAL:
        where |= {
            "num_cpus": max(ceil(cpus), os.cpu_count() or 1),
            "object_store_memory": _OBJECT_STORE,
        }
        where |= {"include_dashboard": False}
    try:
        host, _, port = address.rpartition(":")
        # if nobody listens, Ray would try for minutes, and cannot be interrupted
        if host and port.isdecimal():
            socket.create_connection(
                (host.strip("[]"), int(port)), timeout=_PATIENCE
            ).close()
        with _without_stderr():
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ConfigurationError(
            f"no Ray cluster can be had at {address!r}: {str(error).rstrip('.')}. `ray "
            "start --head` starts one, and 'local' one for this run alone"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


class _Failed(NamedTuple):
    """A worker's report of a question that failed."""

    error: Exception


class _Worker:
    """Draws, in a process of its own.

    Args:
        make: the result of :meth:`RayWorkers._packed`.
    """

    def __init__(self, make: bytes) -> None:
        self._sampler: QuestionSampler | SamplingError
        try:
            self._sampler = pickle.loads(make)()
        except Exception as error:
            # raised here it would end the actor, and come out as a report of Ray's
            self._sampler = SamplingError(
                f"a worker on {socket.gethostname()} cannot have the model: {error}",
                [error],
            )

    def draw(self, pending: PendingQuestion) -> Outcome | _Failed:
        if isinstance(self._sampler, SamplingError):
            return _Failed(self._sampler)
        try:
            return self._sampler(pending)
        except Exception as error:
            known = portable(error)
            return _Failed(
                known if isinstance(known, Exception) else SamplingError(repr(known))
            )


def _results(
    ray: Any, places: Sequence[Any], pending: Sequence[PendingQuestion]
) -> Iterator[tuple[PendingQuestion, Outcome]]:
    """Give each place, a worker's, the next question as soon as it is free; after a
    failure, wait for what runs.
    """
    waiting, failed = iter(pending), list[Exception]()
    running = {
        worker.draw.remote(one): (one, worker)
        for worker, one in zip(places, waiting, strict=False)
    }
    while running:
        [done], _ = ray.wait(list(running))
        (question, worker), outcome = running.pop(done), ray.get(done)
        if isinstance(outcome, _Failed):
            failed.append(outcome.error)
        else:
            yield question, outcome
        if not failed:
            running |= {
                worker.draw.remote(one): (one, worker) for one in islice(waiting, 1)
            }
    if failed:
        raise failed[0]


def _unchanged(sampler: QuestionSampler) -> QuestionSampler:
    return sampler


def _sampler(
    make_model: MakeModel, prompt: Template, samples: int, answer: AnswerSpec
) -> QuestionSampler:
    made = make_model()
    model = made.__enter__() if isinstance(made, AbstractContextManager) else made
    return QuestionSampler(model, prompt, samples, answer)


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Silence stderr: Ray's native part prints which level of logging it was given,
    whatever the level.
    """
    sys.stderr.flush()
    with open(os.devnull, "wb") as nowhere, ExitStack() as undone:
        kept = os.dup(2)
        undone.callback(os.close, kept)
        undone.callback(os.dup2, kept, 2)
        os.dup2(nowhere.fileno(), 2)
        yield
