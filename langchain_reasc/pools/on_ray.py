"""Asking on many machines: Ray Data's actors ask, and this process, which alone writes the pool, gets what they have.

Questions go out in small blocks, and each comes back by itself as soon as it is done. An actor that dies is started
again, and its blocks are asked again; what had come back is not taken twice. Where a question fails nothing new is
begun, as on one machine: a small actor, the desk, knows what was, so that it can be waited for.
"""

import pickle
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Final, NamedTuple

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable

from langchain_reasc.answers import AnswerSpec
from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError, SamplingError, portable
from langchain_reasc.pools.asking import Answered, Asked, Asking, Prompts
from langchain_reasc.pools.ray_cluster import LOCAL, import_ray, quiet_data, ray_cluster

__all__ = ["RayWorkers"]

Outcome = Answered | ContextOverflowError
_Row = tuple[int, bytes]
_Model = Runnable[LanguageModelInput, Any]
MakeModel = Callable[[], _Model | AbstractContextManager[_Model]]

_BLOCKS: Final = 2_000  # more of them, each of fewer questions, cost the driver 10 kB each, and time
_LARGEST: Final = 32  # questions of a block: as many are asked a second time where a worker dies
_GO_ON: Final = "what was complete is kept: run the same command again to go on"
# A block of answers is sent as soon as it is larger than this, and so each answer; a hard question may take its time.
_SETTINGS: Final = {"target_max_block_size": 1, "execution_no_progress_timeout_s": -1}
_DEATHS: Final = 3  # of workers over the same block, before it is taken to be what kills them


@dataclass(frozen=True)
class RayWorkers:
    """Has questions asked by workers on Ray; give it to ``record_pool(workers=...)``.

    Args:
        address: "local" starts a cluster on this machine and ends it, "auto" joins the one that this machine belongs
            to, HOST:PORT another. A connection that this process has is used, and kept.
        count: how many workers.
        concurrency: questions that each has in flight at once.
        cpus: CPUs that each worker takes from the cluster's; next to none where it only waits for servers.
        gpus: GPUs that each takes, for a model in its own process.
        make_model: makes the model in each worker, out of what is there, such as a key in its environment; it must
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

    def __call__(self, asked: Sequence[Asked], asking: Asking) -> Generator[tuple[Asked, Outcome], None, None]:
        """Answers in the order they are had.

        Raises:
            MissingExtraError: Ray is not installed.
            ConfigurationError: there is no such cluster, it has no room for a worker, or the model cannot be sent.
            SamplingError: a question failed, or workers died again and again. What was in flight came out before.
        """
        if not asked:
            return
        make = self._packed(asking)
        with ray_cluster(self.address, cpus=self.count * self.cpus) as ray:
            self._require_room(ray.cluster_resources())
            left = dict(enumerate(asked))
            while left:  # a second time only where a worker died in the middle of a block
                before = len(left)
                yield from self._once(ray, left, make)
                if len(left) == before:
                    raise SamplingError(f"the workers on Ray ended without an answer to {before} questions; {_GO_ON}")

    def _once(self, ray: Any, left: dict[int, Asked], make: bytes) -> Iterator[tuple[Asked, Outcome]]:
        """What comes back when all that is left is asked; it is taken out of ``left``."""
        desk = _desk(ray)
        failed: list[Exception] = []
        begun: set[int] = set()
        try:
            with quiet_data(ray, **_SETTINGS), closing(self._rows(ray, left, make, desk)) as rows:
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
            said = next(iter(str(error).splitlines()), "")
            raise SamplingError(f"the workers on Ray ended: {type(error).__name__}: {said}; {_GO_ON}") from error
        finally:
            if ray.is_initialized():
                ray.kill(desk)
        if failed:
            raise failed[0]

    def _rows(self, ray: Any, left: Mapping[int, Asked], make: bytes, desk: Any) -> Generator[_Row, None, None]:
        """What workers give back of each question: its position, and an outcome, pickled."""
        positions, size = list(left), min(max(1, len(left) // _BLOCKS), _LARGEST)
        blocks = [
            {"asked": pickle.dumps({at: left[at] for at in positions[start : start + size]})}
            for start in range(0, len(positions), size)
        ]
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

    def _packed(self, asking: Asking) -> bytes:
        """What makes a worker's own ``asking``, pickled: code that workers may not have goes along."""
        cloudpickle = import_ray().cloudpickle
        if self.make_model is not None:
            made: Any = partial(_made, self.make_model, asking.prompt, asking.samples, asking.answer)
        else:
            made = asking
        try:
            return bytes(cloudpickle.dumps(made))
        except Exception as error:
            sent = type(asking.model).__name__ if self.make_model is None else "make_model"
            raise ConfigurationError(
                f"{sent} cannot be sent to workers ({type(error).__name__}: {error}); give "
                "RayWorkers(make_model=...) a function of a module that makes the model in each"
            ) from error

    def _require_room(self, there: dict[str, float]) -> None:
        for name, wanted in (("CPU", self.cpus), ("GPU", self.gpus)):
            if there.get(name, 0) < wanted:
                raise ConfigurationError(
                    f"a worker takes {wanted:g} {name}s, and the whole Ray cluster has {there.get(name, 0):g}"
                )


class _Failed(NamedTuple):
    """What a worker sends back of a question that failed."""

    error: Exception


class _Worker:
    """Asks, in a process of its own; Ray makes it once per actor.

    Args:
        make: what :meth:`RayWorkers._packed` gave.
        concurrency: questions in flight at once, of all blocks.
        desk: who says whether another question may be begun.
    """

    def __init__(self, make: bytes, concurrency: int, desk: Any) -> None:
        self._threads, self._desk = ThreadPoolExecutor(concurrency, "reasc-ray"), desk
        try:
            made = pickle.loads(make)
            self._ask: Asking | None = made() if isinstance(made, partial) else made
        except Exception as error:  # raised here it would end the actor, and come out as a report of Ray's
            self._ask = None
            self._broken = SamplingError(f"a worker on {socket.gethostname()} cannot have the model: {error}", [error])

    def __call__(self, block: dict[str, bytes]) -> Iterator[dict[str, Any]]:
        """The outcomes of a block, each as soon as it is there."""
        asked: dict[int, Asked] = pickle.loads(block["asked"])
        running = {self._threads.submit(self._outcome, at, one): at for at, one in asked.items()}
        for done in as_completed(running):
            yield {"at": running.pop(done), "outcome": pickle.dumps(done.result())}

    def _outcome(self, at: int, asked: Asked) -> Outcome | _Failed | None:
        import ray

        if not ray.get(self._desk.begins.remote(at)):
            return None
        if self._ask is None:
            return _Failed(self._broken)
        try:
            return self._ask(asked)
        except Exception as error:
            known = portable(error)
            return _Failed(known if isinstance(known, Exception) else SamplingError(repr(known)))


def _desk(ray: Any) -> Any:
    """An actor on this machine that knows which questions were begun, and lets none begin once it is closed."""
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
    """An actor pool, each of whose actors takes so many calls at once, as this version of Ray Data has it told."""
    strategy, known = ray.data.ActorPoolStrategy, signature(ray.data.ActorPoolStrategy).parameters
    if "enable_true_multi_threading" in known:
        strategy = partial(strategy, enable_true_multi_threading=True)
    if "max_concurrent_calls_per_actor" in known:
        return partial(strategy, max_concurrent_calls_per_actor=calls), {}
    return strategy, {"max_concurrency": calls}


def _made(make_model: MakeModel, prompt: Prompts, samples: int, answer: AnswerSpec) -> Asking:
    made = make_model()
    model = made.__enter__() if isinstance(made, AbstractContextManager) else made
    return Asking(model, prompt, samples, answer)
