"""Pools in the laboratory: read with notes, imported, exported, merged, graded again; what recording them costs."""

from langchain_reasc_lab.pools.reading import read_pool

__all__ = ["read_pool"]
