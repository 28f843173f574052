"""The site in a browser: every page fits a phone and a desktop, and complains of nothing."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from chromium import chromium, in_a_browser

pytestmark: Final = in_a_browser


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window(site: Path, tmp_path: Path, width: int) -> None:
    pages = sorted(str(path.parent.relative_to(site)) for path in site.rglob("index.html"))
    assert {"agents", "reference/langchain_reasc", "reference/langchain_reasc/ReASCRunnable"} < set(pages)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with chromium(tmp_path) as driver:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            for page in pages:
                driver.get(f"http://127.0.0.1:{server.server_port}/{page}/")
                assert driver.execute_script("return document.documentElement.scrollWidth") <= width, page
                assert not driver.get_log("browser"), page
        server.shutdown()
