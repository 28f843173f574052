"""Measures what the llama.cpp backend costs beside its peers: ``python -m benchmarks``."""
