"""Rules of other papers, for comparison; none is a default.

Those that stop: :class:`CGES`, :class:`LAggregated`, :class:`MajorityCertificate`, :class:`CITE`, :class:`SPRT` and
:class:`AheadBy`.
Those that weigh and filter all responses, and never stop by themselves: :class:`CISC`, :class:`DeepConfFilter` and
:class:`DistriVoting`, to be used as ``CISC() | Cap(16)``. What such a combination decides is what its rule says of the
first 16 responses.
:func:`fit_odds` learns the odds of being right by score, for the rules that weigh by odds.
"""

from langchain_reasc_lab.rules.certificates import CITE, MajorityCertificate
from langchain_reasc_lab.rules.stopping import CGES, SPRT, AheadBy, LAggregated, fit_odds
from langchain_reasc_lab.rules.weighted import CISC, DeepConfFilter, DistriVoting

__all__ = [
    "CGES",
    "CISC",
    "CITE",
    "SPRT",
    "AheadBy",
    "DeepConfFilter",
    "DistriVoting",
    "LAggregated",
    "MajorityCertificate",
    "fit_odds",
]
