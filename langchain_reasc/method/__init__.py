"""The method, pure: from token signals to a decision. Knows of numbers and answers, nothing of LangChain or models.

``token_signals`` → ``confidence`` (one score per response) → ``evidence`` (what a response counts) → ``stopping``.
More rules are in ``horizon`` and ``bayesian_vote``, those of others in ``others``; ``rules`` has all by name.
"""
