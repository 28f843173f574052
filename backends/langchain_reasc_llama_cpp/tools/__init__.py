"""Tool calls and structured output."""
