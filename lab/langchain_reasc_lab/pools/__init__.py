"""Pools in the laboratory: read with notes, imported, exported, merged, graded again; what recording them costs."""

from langchain_reasc_lab.pools.reading import CALIBRATION_POOL, calibrated_on, read_pool

__all__ = ["CALIBRATION_POOL", "calibrated_on", "read_pool"]
