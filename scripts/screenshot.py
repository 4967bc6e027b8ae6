"""Make the screenshots of the documentation from a running demo: python scripts/screenshot.py [SECONDS]

The demo runs for so many seconds (default 75) before the picture is taken, so that the budget's window is full and the
chart has something to show. Needs the packages of the tests and a system's chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from dpcrowd.demo.run import make_source, open_demo

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTH, HEIGHT = 1280, 1400


def main(seconds: float) -> None:
    """Run a demo, and take the picture."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    source = make_source(20_000, None, "1d", 0)
    with (
        open_demo(source, servers=5, slot="1s", seed=0, keep=None, report=print) as demo,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(demo.page)
        for _ in demo.rows(seconds):  # raises what keeps the demo from feeding its nodes
            page.wait_for_timeout(1)
        page.get_by_role("button", name="1 minute").click()
        page.wait_for_timeout(1_500)
        page.screenshot(path=str(IMAGES / "page.png"))
        browser.close()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 75.0)
