import asyncio

import pytest
from servers.chat_wire import PROMPT_TOKENS

from benchmarks.load_test import run


@pytest.mark.slow  # a load test
def test_no_sample_is_lost_or_billed_twice_when_a_server_dies_and_comes_back() -> None:
    report = asyncio.run(run(questions=40, samples=4, servers=3, at_once=10, down=0.5))
    assert (report.lost, report.twice, report.errors) == (0, 0, [])
    assert report.billed == report.generated > 0 and report.billed_prompts == 160 * PROMPT_TOKENS
    assert report.moved > 0 and report.ok
    assert sum(status.served for status in report.status) == 160
