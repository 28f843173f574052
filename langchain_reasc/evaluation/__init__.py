"""Measuring: recorded pools of responses, replay of every method over them, tables and plots."""

from langchain_reasc.evaluation.metrics import Estimate, Row, summarize
from langchain_reasc.evaluation.pool import Pool, PoolQuestion, PoolResponse
from langchain_reasc.evaluation.reading import read_pool
from langchain_reasc.evaluation.replay import Replay, replay

__all__ = ["Estimate", "Pool", "PoolQuestion", "PoolResponse", "Replay", "Row", "read_pool", "replay", "summarize"]
