"""ReASC: reliability-aware adaptive self-consistency as a LangChain Runnable."""
