"""How tokens are drawn."""
