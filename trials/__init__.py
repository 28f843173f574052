"""Runs that try what tests are too short for: load, aborts, mutated payloads, other servers, Ray, large pools."""
