"""What is refused before any worker is started."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.test_commands import reasc

from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError
from langchain_reasc.pools.on_ray import RayWorkers
from langchain_reasc.pools.ray_cluster import ray_cluster
from langchain_reasc.pools.record import record_pool
from pools.synthetic import Guesser

QUESTIONS = [LabelledQuestion("q0", "question 0", "6")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"count": 0}, "count of workers must be 1 or more, got 0"),
        ({"concurrency": 0}, "concurrency of workers must be 1 or more, got 0"),
        ({"cpus": -1}, "cpus of workers must be 0 or more, got -1"),
    ],
)
def test_numbers_out_of_range(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        RayWorkers(**options)


def test_rays_client_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on a machine of the cluster"), ray_cluster("ray://head:1", cpus=1):
        pass


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ray is not installed.*langchain-reasc\[ray\]"):
        record_pool(Guesser(), QUESTIONS, tmp_path / "p.sqlite", samples=1, workers=RayWorkers())
    data = tmp_path / "q.csv"
    data.write_text("question,answer\nHow much is 2 + 2?,4\n")
    refused = reasc("record", data, "--out", tmp_path / "c.sqlite", "--ray", "local", code=1)
    assert "langchain-reasc[ray]" in refused.stderr and not (tmp_path / "c.sqlite").exists()


def test_workers_without_ray_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "q.csv"
    data.write_text("question,answer\nHow much is 2 + 2?,4\n")
    refused = reasc("record", data, "--out", tmp_path / "c.sqlite", "--ray-workers", "2", code=1)
    assert refused.stderr == "error: --ray-workers goes with --ray\n"


@pytest.mark.slow  # Ray's import
def test_an_address_where_nobody_listens() -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    refused = pytest.raises(ConfigurationError, match=f"no Ray cluster can be had at '{address}'.*refused")
    with refused, ray_cluster(address, cpus=1):
        pass
