"""Where ReASC meets LangChain's agents: faces that stand where an agent expects a model of some kind."""
