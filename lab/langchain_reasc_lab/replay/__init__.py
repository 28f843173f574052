"""Measuring: replay of every method over recorded pools, tables and plots."""

from langchain_reasc.pools import Pool, PoolQuestion, PoolResponse
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_lab.replay.metrics import Estimate, Row, summarize
from langchain_reasc_lab.replay.replay import Replay, replay

__all__ = ["Estimate", "Pool", "PoolQuestion", "PoolResponse", "Replay", "Row", "read_pool", "replay", "summarize"]
