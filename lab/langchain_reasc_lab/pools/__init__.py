"""Pools: graded anew, merged, exported."""
