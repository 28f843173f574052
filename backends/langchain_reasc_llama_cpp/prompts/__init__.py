"""From LangChain messages to the text of a prompt."""
