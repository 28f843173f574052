"""ReASC for agents: a chat model, a middleware and a decision model that vote on their outputs."""
