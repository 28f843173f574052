from langchain_reasc.answers.normalize import normalize
def canonical_mathematics(raw): return normalize(raw)
def require_math_verify(): pass
