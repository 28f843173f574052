"""The version of the distribution, recorded in every calibration."""

__version__ = "0.1.0"
"""The version of this package."""
