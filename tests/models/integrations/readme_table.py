"""The table "Chat models" of the backends' README."""

import re
from pathlib import Path

README = (Path(__file__).parents[3] / "backends" / "README.md").read_text()
SECTION = README[README.index("### Chat models") : README.index("### Your own chat model")]
ROWS = {row[0].strip("`"): row[1:] for row in re.findall(r"^\| (`\w+`) " + r"\| (.*?) *" * 5 + r"\|$", SECTION, re.M)}
"""Class -> signals, k, n, whether it is streamed, tests."""
