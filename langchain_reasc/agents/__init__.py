"""ReASC for agents: a chat model and a middleware that vote on their outputs."""
