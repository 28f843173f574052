"""The k most likely tokens of a row of logits: the core's, which its token signals use too."""

from langchain_reasc.top_candidates import top_candidates

__all__ = ["top_candidates"]
