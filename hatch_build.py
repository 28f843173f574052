"""The links of a release.

An index of packages shows the README alone, where relative links lead nowhere.
``REPOSITORY=https://github.com/OWNER/NAME`` in the environment of a build makes them
links to the files of this version there, adds the project's URLs, and installs from the
index what the README installs from a checkout. Without it, as in a checkout, the README
stays as it is.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReleaseLinks(MetadataHookInterface):
    """Sets ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        readme = (root / "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("REPOSITORY", "").rstrip("/")
        if repository:
            tag = f"v{metadata['version']}"
            readme = re.sub(
                r"(!?)\[[^\]]*\]\((?!https?:|#)",
                lambda link: (
                    f"{link[0]}{repository}/{'raw' if link[1] else 'blob'}/{tag}/"
                ),
                readme,
            )
            readme = re.sub(
                r'^pip install "\.(\[\w+\]").*',
                rf'pip install "{metadata["name"]}\1',
                readme,
                flags=re.M,
            )
            metadata["urls"] = {
                "Homepage": repository,
                "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
