"""ReASC at home in agents: where a chat model, a middleware or a decision model is asked for."""
