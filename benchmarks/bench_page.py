"""The live page in a browser: size, first paint, frames while zooming with 1,000 regions and 10,000 slots, viewers.

The browser is Debian's chromium, headless, which draws without a graphics card: frames of a real screen are shorter.
The large crowd is a service without a network behind the real API, as in the tests. What viewers cost is the processor
time of a real node of a demo, with nobody looking and with three open pages. Everything but the size depends on what
else the machine does: look at the load below the table, and measure on a quiet machine.
"""

from __future__ import annotations

from harness import Target, print_targets  # isort: skip  # first: sets threads

import gzip
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "support")]

import psutil  # noqa: E402

from dpcrowd.demo.run import make_source, open_demo  # noqa: E402
from dpcrowd.node.api.page import ASSETS  # noqa: E402
from page_support import Crowd, Opened, chromium, served  # noqa: E402

REGIONS, SLOTS, VIEWERS, SECONDS = 1_000, 10_000, 3, 30.0
ZOOM = """(async () => {
  const over = document.querySelector('#chart .u-over'), box = over.getBoundingClientRect(), starts = [], work = [];
  for (let step = 0; step < 120; step++) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
    const start = performance.now(), deltaY = step < 60 ? -60 : 60;
    starts.push(start);
    const [clientX, clientY] = [box.left + 300, box.top + 50];
    over.dispatchEvent(new WheelEvent('wheel', { deltaY, clientX, clientY, cancelable: true }));
    await null;  // uPlot draws in a microtask
    work.push(performance.now() - start);
  }
  const part = (values, share) => values.sort((a, b) => a - b)[Math.floor(values.length * share)];
  const frames = starts.slice(1).map((one, place) => one - starts[place]);
  return [part(frames, 0.5), part(frames, 0.95), part(work, 0.5), part(work, 0.95)];
})()"""


def measure_size() -> Target:
    """Measure what a browser loads before it asks for data, compressed."""
    folder = files("dpcrowd.node.api").joinpath("assets")
    size = sum(len(gzip.compress(folder.joinpath(name).read_bytes(), 9)) for name, _ in ASSETS.values())
    return Target("size, compressed", size / 1000, 150.0, " KB", at_least=False)


def measure_drawing(browser: Any) -> list[Target]:
    """Measure the first paint and the frames of a large crowd."""
    with served(Crowd(REGIONS, SLOTS)) as (address, _):
        opened = Opened(browser, address)
        opened.wait_for(f"document.querySelectorAll('.tile').length === {REGIONS}")
        paint = opened.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        for region in (5, 500, 700):
            opened.page.locator(".tile").nth(region).click()
        opened.page.get_by_role("button", name="Everything").click()
        opened.page.wait_for_timeout(8_000)  # until the past of three regions has come
        frame, slow_frame, work, slow_work = opened.page.evaluate(ZOOM)
        opened.close()
    return [
        Target("first paint on loopback", paint, 1000.0, " ms", at_least=False),
        Target("frame while zooming, median", frame, 50.0, " ms", at_least=False),
        Target("frame while zooming, 95%", slow_frame, 50.0, " ms", at_least=False),
        Target("the page's own work in it, median", work, 50.0, " ms", at_least=False),
        Target("the page's own work in it, 95%", slow_work, 50.0, " ms", at_least=False),
    ]


def measure_viewers(browser: Any) -> Target:
    """Measure the processor time of a node with three viewers, beyond what it needs without them."""
    source = make_source(20_000, None, "1d", 0)
    with open_demo(source, servers=2, slot="1s", seed=0, keep=None, report=lambda _: None) as demo:
        process = psutil.Process(demo.processes.pids["server-1"])

        def part_of_core() -> float:
            before, start = sum(process.cpu_times()[:2]), time.monotonic()
            time.sleep(SECONDS)
            return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - start)

        time.sleep(5)
        alone = part_of_core()
        pages = [Opened(browser, demo.network.nodes[0].address + "/") for _ in range(VIEWERS)]
        pages[0].page.wait_for_timeout(3_000)
        cost = part_of_core() - alone
        for page in pages:
            page.close()
    what = f"{VIEWERS} viewers, beside {100 * alone:.1f}% without any"
    return Target(what, 100 * cost, 5.0, "% of a core", at_least=False)


def main() -> None:
    with chromium() as browser:
        print_targets([measure_size(), *measure_drawing(browser), measure_viewers(browser)])


if __name__ == "__main__":
    main()
