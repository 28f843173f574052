"""Who joins, who leaves, who waits, who is set back: the rules, without a model."""

from typing import Any, cast

import numpy as np
from langchain_reasc_llama_cpp.engine.sequences import Sequence, SequenceGroup
from langchain_reasc_llama_cpp.engine.kv_cells import KvCells
from langchain_reasc_llama_cpp.engine.prompt_cache import PromptCache
from langchain_reasc_llama_cpp.engine.request import GenerationRequest
from langchain_reasc_llama_cpp.engine.scheduler import Scheduler
from langchain_reasc_llama_cpp.engine.text import TextAssembler
from langchain_reasc_llama_cpp.sampling.sampler import SamplingParameters

from backends.llama_cpp.engine.test_kv_cells import Ledger


class Course:
    """Decode steps that only count: every sequence gets a token, every prompt its next piece."""

    def __init__(self, *, n_parallel: int = 4, capacity: int = 1000, piece: int = 100) -> None:
        self.cells = KvCells(Ledger(), capacity=capacity, n_sequences=2 * n_parallel + 2)
        self.prompts = PromptCache(self.cells, size=2)
        self.scheduler = Scheduler(self.cells, self.prompts, n_parallel=n_parallel)
        self.piece, self.jobs, self.prefilled = piece, 0, 0

    def add(self, n: int, prompt: int | list[int] = 10) -> Job:
        tokens = [self.jobs * 1000 + i for i in range(prompt)] if isinstance(prompt, int) else prompt
        request = GenerationRequest(
            prompt=np.array(tokens, dtype=np.int32),
            samples=range(n),
            seed=0,
            sampling=SamplingParameters(),
            max_tokens=10**6,
            emit=lambda _event: None,
        )
        job = Job(request, self.jobs)
        self.jobs += 1
        self.scheduler.add(job)
        return job

    def step(self) -> None:
        for sequence in self.scheduler.admit(begin):
            self.scheduler.start(sequence)
            sequence.tokens.append(0)
        feeds = [(feed, min(feed.left, self.piece)) for feed in self.scheduler.feeds]
        rows = list(self.scheduler.decoding)
        while not self.scheduler.make_room(len(rows) + sum(size for _, size in feeds)):
            assert self.scheduler.set_back() is not None
            rows = list(self.scheduler.decoding)
            feeds = [(feed, size) for feed, size in feeds if feed in self.scheduler.feeds]
        for feed, size in feeds:
            self.prefilled += size
            if self.scheduler.fed(feed, size) and isinstance(feed.owner, Job):
                assert feed.owner.prompt is not None
                feed.owner.prompt.logits = np.zeros(2, dtype=np.float32)
        for sequence in rows:
            assert sequence.slot is not None
            self.cells.grow(sequence.slot)
            sequence.tokens.append(0)

    def end(self, sequence: Sequence) -> None:
        self.scheduler.release(sequence)
        sequence.job.unfinished -= 1
        if not sequence.job.unfinished:
            self.scheduler.remove(sequence.job)

    def finish(self, most: int) -> int:
        """Let every sequence end after ``most`` tokens; returns the steps until nothing was left."""
        for steps in range(10_000):
            if not self.scheduler.busy:
                return steps
            self.step()
            for sequence in list(self.scheduler.decoding):
                if len(sequence.tokens) >= most:
                    self.end(sequence)
        raise AssertionError("it never ended")


def begin(job: Job, index: int) -> Sequence:
    unused = cast(Any, None)
    return Sequence(job, index, TextAssembler(), sampler=unused, wanted=unused)


def live(*jobs: Job) -> list[list[int]]:
    return [sorted(sequence.index for sequence in job.live) for job in jobs]


def test_samples_join_in_order_and_as_others_end() -> None:
    course = Course(n_parallel=2)
    job = course.add(5)
    course.step()
    course.step()
    assert live(job) == [[0, 1]]
    course.end(job.live[0])
    course.step()
    assert live(job) == [[1, 2]]


def test_slots_are_shared_by_all_requests() -> None:
    course = Course(n_parallel=4)
    many = course.add(50)
    course.step()
    course.step()
    assert live(many) == [[0, 1, 2, 3]]
    one = course.add(1)
    course.end(many.live[0])
    course.step()  # its prompt
    course.step()
    assert live(many, one) == [[1, 2, 3], [0]]


def test_requests_take_turns_the_oldest_first() -> None:
    course = Course(n_parallel=4)
    jobs = [course.add(4) for _ in range(3)]
    for _ in range(3):
        course.step()
    assert live(*jobs) == [[0, 1], [0, 1], []]  # half the slots each
    for _ in range(2):
        course.end(jobs[0].live[0])
        course.step()
        course.step()
    assert live(*jobs) == [[], [0, 1], [0, 1]]  # whose first turn it is, before anybody's second
    for _ in range(2):
        course.end(jobs[1].live[0])
        course.step()
    assert live(*jobs) == [[2, 3], [], [0, 1]]


def test_a_prompt_is_prefilled_once_however_many_requests_take_turns() -> None:
    course = Course(n_parallel=2)  # a sample each turn, and only two prompts are kept that nobody waits for
    jobs = [course.add(4) for _ in range(12)]
    course.finish(5)
    assert course.prefilled == sum(len(job.request.prompt) for job in jobs)
    assert len(course.prompts) == 2
    assert not any(prompt.waiters for prompt in course.prompts._prompts)


def test_what_cancelled_requests_waited_for_is_not_kept() -> None:
    course = Course(n_parallel=2)
    jobs = [course.add(4) for _ in range(5)]
    for _ in range(9):
        course.step()
        for sequence in list(course.scheduler.decoding):
            course.end(sequence)
    assert sum(job.parked is not None for job in jobs) > 2
    for job in jobs:
        course.scheduler.remove(job)
    assert len(course.prompts) == 2


def test_one_who_comes_late_does_not_wait_for_those_with_many() -> None:
    course = Course(n_parallel=4)
    many = [course.add(500), course.add(500)]
    for _ in range(200):
        course.step()
        for sequence in list(course.scheduler.decoding)[:1]:
            course.end(sequence)
    late = course.add(1)
    ended = 0
    while not late.live:
        course.step()
        for sequence in list(course.scheduler.decoding)[:1]:
            if sequence.job in many:
                course.end(sequence)
                ended += 1
    assert ended <= 6


def test_prompts_come_in_beside_running_samples() -> None:
    course = Course(piece=10)
    running = course.add(2)
    course.step()
    course.step()
    late = course.add(1, prompt=35)
    before = len(running.live[0].tokens)
    for _ in range(4):
        course.step()
    assert late.prompt is not None
    assert late.prompt.done == 35
    assert len(running.live[0].tokens) == before + 4


def test_a_prompt_waits_for_one_it_can_share() -> None:
    course = Course(piece=20)
    shared = list(range(60))
    first, second, other = course.add(1, [*shared, 100]), course.add(1, [*shared, 200]), course.add(1)
    course.step()
    assert [job.prompt is None for job in (first, second, other)] == [False, True, True]
    for _ in range(5):
        course.step()
    assert second.prompt is not None
    assert second.prefilled is not None
    assert second.prefilled <= 21  # less than 32 tokens more would not be worth another wait
    assert len(other.live) == 1


def test_the_youngest_is_set_back_and_goes_on_when_another_has_ended() -> None:
    course = Course(n_parallel=3, capacity=70)
    job = course.add(3)
    while not job.set_back:
        course.step()
    back = job.set_back[0]
    assert back.index == 2
    held = len(back.tokens)
    course.step()
    assert live(job) == [[0, 1]]  # it would only be set back again
    course.end(job.live[0])
    for _ in range(3):
        course.step()
    assert live(job) == [[1, 2]]
    assert len(back.tokens) > held


def test_nobody_passes_one_who_was_set_back() -> None:
    course = Course(n_parallel=4, capacity=100)
    old = course.add(2, prompt=20)
    course.step()
    course.step()
    young = course.add(2, prompt=20)
    while not young.set_back:
        course.step()
    late = course.add(1, prompt=2)
    course.step()
    assert live(late) == [[]]
    assert live(old) == [[0, 1]]


def test_everything_ends_however_small_the_cache() -> None:
    for capacity in (61, 75, 100, 200):
        course = Course(n_parallel=4, capacity=capacity, piece=7)
        for n, prompt in ((3, 30), (1, 20), (5, 10), (2, 30), (1, 1)):
            course.add(n, prompt)
        course.finish(30)
        course.prompts.swap_out()
        assert (course.cells.used, course.cells.sequences_left) == (0, 10)


def test_kept_prompts_give_way_to_work() -> None:
    course = Course(n_parallel=2, capacity=100)
    course.add(1, prompt=40)
    course.finish(5)
    assert course.cells.used == 40
    course.add(1, prompt=80)
    course.finish(10)
    assert course.cells.used == 80
    assert course.prompts.shared(np.arange(40, dtype=np.int32)) == 0  # both would be more than the cache holds


def test_the_last_one_is_never_set_back() -> None:
    course = Course()
    job = course.add(1)
    course.step()
    course.step()
    assert len(job.live) == 1
    assert course.scheduler.set_back() is None
