"""The page of the example with FastAPI in a real browser: Chromium, or Chrome, driven by selenium."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chromium import chromium, in_a_browser
from fastapi_app import EASY, Served, served
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from runnable.fakes import Reply, saying

from langchain_reasc import ASC, ReASCRunnable

pytestmark = in_a_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def page(browser: Any) -> Iterator[Callable[[Served], "Page"]]:
    yield lambda app: Page(browser, app.url)
    faults = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not faults, "the page raised errors, or asked for what is not there"


class Page:
    """The page as its reader sees it."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get(url)

    def find(self, css: str) -> Any:
        return self.browser.find_element("css selector", css)

    def texts(self, css: str) -> list[str]:
        return [element.text for element in self.browser.find_elements("css selector", css)]

    def ask(self, question: str) -> None:
        self.find("#question").clear()
        self.find("#question").send_keys(question)
        self.find("[type=submit]").click()

    def wait(self, css: str, text: str) -> str:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, 20).until(lambda _: text in self.find(css).text)
        return str(self.find(css).text)


def test_a_reader_sees_each_sample_the_evidence_and_why_it_stopped(page: Any) -> None:
    with ChatLlamaCpp(seed=1) as model:
        own = embedded_model_path().with_name("calibration.json")
        with served(ReASCRunnable(model=model, calibration=own)) as app:
            shown = page(app)
            shown.find("[type=submit]").click()
            status = shown.wait("#status", "the evidence is sufficient")
            samples = shown.texts("#samples summary")
            assert f"after {len(samples)} of" in status and status.startswith(shown.texts(".bar.lead span")[0])
            assert "% are wanted" in shown.find("#chance").text
            shown.find("#samples summary").click()
            assert "boxed" in shown.find("#samples p").text


def test_samples_are_shown_before_the_decision_and_a_closed_tab_cuts_off_the_rest(page: Any, browser: Any) -> None:
    first = saying("<b>1</b>", Reply(endless=True))
    with served(ReASCRunnable(rule=ASC(), model=first, concurrency=2, answer="regex:answer is (.*)")) as app:
        kept = browser.current_window_handle
        browser.switch_to.new_window("tab")
        shown = page(app)
        shown.ask(EASY)
        shown.wait("#status", "Sample 1 of up to 16")
        assert shown.texts("#samples summary") == ["1: <b>1</b>, counts for 1.00 (4 tokens)"], "text, not HTML"
        assert first.log.live == 1
        browser.close()
        browser.switch_to.window(kept)
        app.wait_until(lambda: first.log.live == 0)
        assert len(first.log.calls) == 2
