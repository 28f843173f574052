"""ReASC for agents: a chat model, a middleware and a decision model whose outputs are voted on."""
