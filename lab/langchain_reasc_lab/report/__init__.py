"""The laboratory: every table and figure of the paper, and what it left out, on anybody's pools; and their report."""
