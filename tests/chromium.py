"""A real browser for the tests of pages: Chromium, or Chrome, driven by selenium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
in_a_browser = [
    pytest.mark.slow,  # a browser takes seconds to start
    pytest.mark.skipif(not BROWSER or not DRIVER, reason="there is no chromium (or google-chrome) with chromedriver"),
]
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """A browser that keeps its files in a folder, and what pages complain of."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in [*FLAGS, f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()
