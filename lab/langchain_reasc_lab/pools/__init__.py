"""Import, export, merge and grade pools, and estimate what recording one costs."""

from langchain_reasc_lab.pools.reading import CALIBRATION_POOL, calibrated_on, read_pool

__all__ = ["CALIBRATION_POOL", "calibrated_on", "read_pool"]
