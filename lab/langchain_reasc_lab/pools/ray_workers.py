"""Recording on many machines: Ray Data's actors draw, and this process, which alone writes the pool, gets the results.

Questions go out in small blocks, and each comes back by itself as soon as it is complete. An actor that dies is started
again, and its blocks are sampled again; what had come back is not taken twice. Where a question fails nothing new is
begun, as on one machine: a small actor, the desk, knows which were begun, so that they can be waited for.
"""

import logging
import os
import pickle
import socket
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from math import ceil
from typing import Any, Final, NamedTuple

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable

from langchain_reasc.answers import AnswerSpec
from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError, SamplingError, missing_extra, portable
from langchain_reasc.pools import DrawnQuestion, PendingQuestion, Prompts, QuestionSampler

__all__ = ["LOCAL", "RayWorkers", "import_ray", "ray_cluster"]

LOCAL: Final = "local"
Outcome = DrawnQuestion | ContextOverflowError
_Row = tuple[int, bytes]
_Model = Runnable[LanguageModelInput, Any]
MakeModel = Callable[[], _Model | AbstractContextManager[_Model]]

_PATIENCE: Final = 10.0  # seconds, for a cluster to be reached
_OBJECT_STORE: Final = 256 * 2**20  # bytes: what is under way, some megabytes for each question of long reasoning
# Nothing is sent to Ray's makers, and what its processes log stays in their files.
_ENVIRONMENT: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
_BLOCKS: Final = 2_000  # more of them, each of fewer questions, cost the driver 10 kB each, and time
_LARGEST: Final = 32  # questions of a block: as many are sampled a second time where a worker dies
_GO_ON: Final = "what was complete is kept: run the same command again to go on"
_SETTINGS: Final = {
    # A block of answers is sent as soon as it is larger than this, and so each answer; a hard question may take long.
    **{"target_max_block_size": 1, "execution_no_progress_timeout_s": -1},
    **{"enable_progress_bars": False, "print_on_execution_start": False, "enable_auto_log_stats": False},
}
"""Attributes of ``ray.data.DataContext``; those that a version does not know are left out."""
_DEATHS: Final = 3  # of workers over the same block, before it is taken to be what kills them


@dataclass(frozen=True)
class RayWorkers:
    """Draws responses by workers on Ray; give it to ``record_pool(workers=...)``.

    Args:
        address: "local" starts a cluster on this machine and ends it, "auto" joins the one that this machine belongs
            to, HOST:PORT another. A connection that this process has is used, and kept.
        count: how many workers.
        concurrency: questions that each has in flight at once.
        cpus: CPUs that each worker takes from the cluster's; next to none where it only waits for servers.
        gpus: GPUs that each takes, for a model in its own process.
        make_model: makes the model in each worker, from what is there, such as a key in its environment; it must
            pickle. A context is entered, and ends with the process. Without ``make_model``, the model is pickled with
            its options, keys included, and sent to the workers.

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
                raise ConfigurationError(f"{name} of workers must be {least} or more, got {getattr(self, name)}")

    def __call__(
        self, pending: Sequence[PendingQuestion], sampler: QuestionSampler
    ) -> Generator[tuple[PendingQuestion, Outcome], None, None]:
        """Yield questions with their responses in the order they come.

        Raises:
            MissingExtraError: Ray is not installed.
            ConfigurationError: there is no such cluster, it has no room for a worker, or the model cannot be sent.
            SamplingError: a question failed, or workers died again and again. What was in flight came out before.
        """
        if not pending:
            return
        make = self._packed(sampler)
        with ray_cluster(self.address, cpus=self.count * self.cpus) as ray:
            there = ray.cluster_resources()
            for name, needed in (("CPU", self.cpus), ("GPU", self.gpus)):
                if there.get(name, 0) < needed:
                    raise ConfigurationError(
                        f"a worker takes {needed:g} {name}s, and the whole Ray cluster has {there.get(name, 0):g}"
                    )
            left = dict(enumerate(pending))
            while left:  # a second time only where a worker died in the middle of a block
                before = len(left)
                yield from self._once(ray, left, make)
                if len(left) == before:
                    raise SamplingError(f"the workers on Ray ended without an answer to {before} questions; {_GO_ON}")

    def _once(
        self, ray: Any, left: dict[int, PendingQuestion], make: bytes
    ) -> Iterator[tuple[PendingQuestion, Outcome]]:
        """Sample all that is left; what comes back is taken out of ``left``."""
        desk = _desk(ray)
        failed: list[Exception] = []
        begun: set[int] = set()
        try:
            with _quiet_data(ray), closing(self._rows(ray, left, make, desk)) as rows:
                for at, packed in rows:
                    begun.discard(at)
                    outcome, one = pickle.loads(packed), left.get(at)
                    if isinstance(outcome, _Failed):
                        if not failed:  # the first: what is in flight now is waited for
                            begun = ray.get(desk.close.remote()) & left.keys() - {at}
                        failed.append(outcome.error)
                    elif outcome is not None and one is not None:
                        yield left.pop(at), outcome
                    if failed and not begun:
                        break
        except ray.exceptions.RayError as error:
            reason = next(iter(str(error).splitlines()), "")
            raise SamplingError(f"the workers on Ray ended: {type(error).__name__}: {reason}; {_GO_ON}") from error
        finally:
            if ray.is_initialized():
                ray.kill(desk)
        if failed:
            raise failed[0]

    def _rows(
        self, ray: Any, left: Mapping[int, PendingQuestion], make: bytes, desk: Any
    ) -> Generator[_Row, None, None]:
        """Yield what workers send back of each question: its position, and an outcome, pickled."""
        positions, size = list(left), min(max(1, len(left) // _BLOCKS), _LARGEST)
        starts = range(0, len(positions), size)
        blocks = [{"pending": pickle.dumps({at: left[at] for at in positions[at : at + size]})} for at in starts]
        at_once = -(-self.concurrency // size) + 1  # blocks of a worker: while one ends, another is begun
        strategy, remote = _threaded(ray, at_once)
        outcomes = ray.data.from_items(blocks, override_num_blocks=len(blocks)).flat_map(
            _Worker,
            fn_constructor_args=(make, self.concurrency, desk),
            compute=strategy(size=self.count, max_tasks_in_flight_per_actor=at_once + 1),
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            ray_remote_args_fn=partial(dict, max_task_retries=_DEATHS),
            **remote,
        )
        with closing(iter(outcomes.iter_rows())) as rows:  # closing it ends what runs
            yield from ((row["at"], row["outcome"]) for row in rows)

    def _packed(self, sampler: QuestionSampler) -> bytes:
        """Pickle what makes a worker's own sampler; code that workers may not have goes along."""
        cloudpickle, made = import_ray().cloudpickle, partial(_unchanged, sampler)
        if self.make_model is not None:
            made = partial(_made, self.make_model, sampler.prompt, sampler.samples, sampler.answer)
        try:
            return bytes(cloudpickle.dumps(made))
        except Exception as error:
            what = type(sampler.model).__name__ if self.make_model is None else "make_model"
            raise ConfigurationError(
                f"{what} cannot be sent to workers ({type(error).__name__}: {error}); give "
                "RayWorkers(make_model=...) a function of a module that makes the model in each"
            ) from error


def import_ray() -> Any:
    """Return the package ``ray``, with ``ray.data``.

    Raises:
        MissingExtraError: it is not installed, or not with what Ray Data needs.
    """
    for name, value in _ENVIRONMENT.items():  # some of it is read when Ray is imported; what the user has set stays
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise missing_extra("ray", "ray" if error.name in (None, "ray") else error.name) from error
    return ray


@contextmanager
def ray_cluster(address: str, *, cpus: float) -> Iterator[Any]:
    """Connect Ray to ``address`` until the block is left, unless this process is connected already.

    Args:
        address: "local" starts a cluster in processes of this machine, which end with the block or this process; "auto"
            joins the one that this machine belongs to, HOST:PORT another.
        cpus: CPUs that are to be taken. A cluster that is started has them, whatever the machine has: workers that
            wait for servers need none.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigurationError: there is no cluster.
    """
    if address.startswith("ray://"):
        raise ConfigurationError(
            f"Ray Data does not work through Ray's client ({address}); run the command on a machine of the cluster, "
            "with address 'auto'"
        )
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    where: dict[str, Any] = {"address": address}
    if address == LOCAL:
        where |= {"num_cpus": max(ceil(cpus), os.cpu_count() or 1), "object_store_memory": _OBJECT_STORE}
        where |= {"include_dashboard": False}
    try:
        host, _, port = address.rpartition(":")
        if host and port.isdecimal():  # where nobody listens, Ray would try for minutes, and cannot be interrupted
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
        with _without_stderr():
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ConfigurationError(
            f"no Ray cluster can be had at {address!r}: {str(error).rstrip('.')}. `ray start --head` "
            "starts one, and 'local' one for this run alone"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


class _Failed(NamedTuple):
    """What a worker sends back of a question that failed."""

    error: Exception


class _Worker:
    """Draws, in a process of its own; Ray makes one per actor.

    Args:
        make: what :meth:`RayWorkers._packed` returned.
        concurrency: questions in flight at once, of all blocks.
        desk: decides whether another question may be begun.
    """

    def __init__(self, make: bytes, concurrency: int, desk: Any) -> None:
        self._threads, self._desk = ThreadPoolExecutor(concurrency, "reasc-ray"), desk
        self._sampler: QuestionSampler | SamplingError
        try:
            self._sampler = pickle.loads(make)()
        except Exception as error:  # raised here it would end the actor, and come out as a report of Ray's
            self._sampler = SamplingError(f"a worker on {socket.gethostname()} cannot have the model: {error}", [error])

    def __call__(self, block: dict[str, bytes]) -> Iterator[dict[str, Any]]:
        """Yield the outcomes of a block, each as soon as it is there."""
        pending: dict[int, PendingQuestion] = pickle.loads(block["pending"])
        running = {self._threads.submit(self._outcome, at, one): at for at, one in pending.items()}
        for done in as_completed(running):
            yield {"at": running.pop(done), "outcome": pickle.dumps(done.result())}

    def _outcome(self, at: int, pending: PendingQuestion) -> Outcome | _Failed | None:
        import ray

        if not ray.get(self._desk.begins.remote(at)):
            return None
        if isinstance(self._sampler, SamplingError):
            return _Failed(self._sampler)
        try:
            return self._sampler(pending)
        except Exception as error:
            known = portable(error)
            return _Failed(known if isinstance(known, Exception) else SamplingError(repr(known)))


def _desk(ray: Any) -> Any:
    """Start an actor on this machine that knows which questions were begun, and lets none begin once it is closed."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    class Desk:  # defined here it is sent as it is, and its process need not import this package
        def __init__(self) -> None:
            self.begun: set[int] = set()
            self.is_open = True

        def begins(self, at: int) -> bool:
            if self.is_open:
                self.begun.add(at)
            return self.is_open

        def close(self) -> set[int]:
            self.is_open = False
            return self.begun

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here)(Desk).remote()


def _threaded(ray: Any, calls: int) -> tuple[Any, dict[str, int]]:
    """Return an actor pool each of whose actors takes so many calls at once, as this version of Ray Data names it."""
    strategy, known = ray.data.ActorPoolStrategy, signature(ray.data.ActorPoolStrategy).parameters
    if "enable_true_multi_threading" in known:
        strategy = partial(strategy, enable_true_multi_threading=True)
    if "max_concurrent_calls_per_actor" in known:
        return partial(strategy, max_concurrent_calls_per_actor=calls), {}
    return strategy, {"max_concurrency": calls}


def _unchanged(sampler: QuestionSampler) -> QuestionSampler:
    return sampler


def _made(make_model: MakeModel, prompt: Prompts, samples: int, answer: AnswerSpec) -> QuestionSampler:
    made = make_model()
    model = made.__enter__() if isinstance(made, AbstractContextManager) else made
    return QuestionSampler(model, prompt, samples, answer)


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Silence stderr: Ray's native part prints which level of logging it was given, whatever the level."""
    sys.stderr.flush()
    with open(os.devnull, "wb") as nowhere, ExitStack() as undone:
        kept = os.dup(2)
        undone.callback(os.close, kept)
        undone.callback(os.dup2, kept, 2)
        os.dup2(nowhere.fileno(), 2)
        yield


@contextmanager
def _quiet_data(ray: Any) -> Iterator[None]:
    """Run Ray Data with our settings, without progress bars and reports."""
    context = ray.data.DataContext.get_current()
    with ExitStack() as undone, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in _SETTINGS.keys() & vars(context).keys():
            undone.callback(setattr, context, name, getattr(context, name))
            setattr(context, name, _SETTINGS[name])
        for log in map(logging.getLogger, ("ray", "ray.data")):
            undone.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
        yield
