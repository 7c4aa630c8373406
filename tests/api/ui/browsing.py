"""A browser of the system, and what it must not find on any view."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

LIMIT_S = 15.0
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def browsing() -> Iterator[Browser]:
    """Give a browser; the test is skipped where there is none."""
    program = next((path for path in map(shutil.which, _NAMES) if path), None)
    if program is None:
        pytest.skip("there is no Chromium here (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        # Without its sandbox, which containers do not let it have; it visits nobody but us.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is looked at; everything that the browser complains of is kept."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.complaints: list[str] = []
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._asked)

    def go(self, *path: str, title: str | None = None) -> Page:
        """Go to a view, and wait until its title, or another text of a heading, stands there."""
        self.page.goto(f"{self.url}/ui/#/{'/'.join(path)}")
        if title is not None:
            self.page.get_by_role("heading", name=title).first.wait_for()
        return self.page

    def accessible(self) -> str:
        """What axe has to say against the view, in light and in dark colours; empty where it has nothing."""
        found = self._looked_at({})
        self.page.emulate_media(color_scheme="dark")
        found += self._looked_at({"runOnly": ["color-contrast"]})
        self.page.emulate_media(color_scheme="light")
        return found

    def _looked_at(self, options: dict[str, object]) -> str:
        found = Axe().run(self.page, options={"resultTypes": ["violations"], **options})
        return "" if found.violations_count == 0 else str(found.generate_report())

    def _said(self, message: ConsoleMessage) -> None:
        # A violation of the content security policy is an error, too.
        if message.type in {"error", "warning"} and "401" not in message.text:
            self.complaints.append(message.text)

    def _asked(self, request: object) -> None:
        url = str(getattr(request, "url", ""))
        if not url.startswith((self.url, "blob:", "data:")):
            self.complaints.append(f"asks {url}")
