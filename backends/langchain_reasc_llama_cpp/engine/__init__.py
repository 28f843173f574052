"""One thread that decodes for all callers: continuous batching, shared prefixes, streams."""
