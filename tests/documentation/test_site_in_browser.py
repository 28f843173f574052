"""The site in a browser: every page fits a phone and a desktop, and complains of nothing."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

from chromium import chromium, in_a_browser

pytestmark: Final = in_a_browser


def test_no_page_is_wider_than_a_phone_or_a_desktop(site: Path, tmp_path: Path) -> None:
    pages = sorted(str(path.parent.relative_to(site)) for path in site.rglob("index.html"))
    assert {"agents", "reference/langchain_reasc", "reference/langchain_reasc/ReASCRunnable"} < set(pages)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with chromium(tmp_path) as driver:
            for page in pages:
                driver.get(f"http://127.0.0.1:{server.server_port}/{page}/")
                for width in (1280, 390):
                    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
                    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                    assert driver.execute_script("return document.documentElement.scrollWidth") <= width, page
                assert not driver.get_log("browser"), page
        server.shutdown()
