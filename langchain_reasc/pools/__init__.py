"""Recorded responses: what a pool holds, where it lives, and how it is recorded, graded and changed."""

from langchain_reasc.pools.pool import Pool, PoolQuestion, PoolResponse
from langchain_reasc.pools.reading import read_pool

__all__ = ["Pool", "PoolQuestion", "PoolResponse", "read_pool"]
