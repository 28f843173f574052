"""The site in a browser: every page fits a phone and a desktop, and complains of nothing."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from chromium import chromium, in_a_browser

pytestmark: Final = in_a_browser
DESKTOP: Final = 1280
PHONE: Final = 390


def resize(driver: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def width_of_page(driver: Any) -> int:
    return int(driver.execute_script("return document.documentElement.scrollWidth"))


def test_no_page_is_wider_than_a_desktop_or_a_phone(site: Path, tmp_path: Path) -> None:
    pages = sorted(str(path.parent.relative_to(site)) for path in site.rglob("index.html"))
    assert {"agents", "reference/langchain_reasc", "reference/langchain_reasc/ReASCRunnable"} < set(pages)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with chromium(tmp_path) as driver:
            for page in pages:
                resize(driver, DESKTOP)  # before the page is there, whose search moves while a window grows
                driver.get(f"http://127.0.0.1:{server.server_port}/{page}/")
                assert width_of_page(driver) <= DESKTOP, page
                resize(driver, PHONE)
                assert width_of_page(driver) <= PHONE, page
                assert not driver.get_log("browser"), page
        server.shutdown()
