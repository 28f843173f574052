"""Pools whose answers and scores are simulated."""
