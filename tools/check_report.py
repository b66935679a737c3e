"""Checks reports in a headless Chromium: no console messages, no requests, all figures visible, no text cut off.

    pip install playwright
    python tools/check_report.py --browser /usr/bin/chromium runs/demo/report.html

Writes a screenshot of each page, 1280 and 390 pixels wide, next to it. The status is 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

WIDTHS = (1280, 390)
# After opening all folded parts: figures that are invisible or extend beyond the page, texts that extend beyond their
# chart, duplicate ids.
INSPECT = """() => {
    document.querySelectorAll("details").forEach(part => { part.open = true; });
    const hidden = [...document.querySelectorAll("figure svg.chart, figure img")].filter(figure => {
        const box = figure.getBoundingClientRect();
        return box.width < 50 || box.height < 50 || box.left < 0 || box.right > innerWidth
            || (figure.tagName === "IMG" && !figure.naturalWidth);
    });
    const cut = [...document.querySelectorAll("svg.chart text")].filter(text => {
        const box = text.getBoundingClientRect(), chart = text.ownerSVGElement.getBoundingClientRect();
        return box.left < chart.left - 1 || box.right > chart.right + 1 || box.top < chart.top - 1
            || box.bottom > chart.bottom + 1;
    });
    const ids = [...document.querySelectorAll("[id]")].map(part => part.id);
    const wide = document.documentElement.scrollWidth - innerWidth;
    return {figures: document.querySelectorAll("figure").length, hidden: hidden.length, wide: wide,
        cut: cut.map(text => text.textContent), duplicates: ids.length - new Set(ids).size};
}"""


def flaws_of(browser: object, path: Path, width: int) -> list[str]:
    """Problems of a page at a width in pixels."""
    page = browser.new_page(viewport={"width": width, "height": 900})  # type: ignore[attr-defined]
    flaws: list[str] = []
    address = path.resolve().as_uri()
    page.on("console", lambda message: flaws.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: flaws.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: None if request.url.startswith((address, "data:")) else flaws.append(f"requests {request.url}"),
    )
    page.goto(address)
    result = page.evaluate(INSPECT)
    if not result["figures"]:
        flaws.append("there are no figures")
    if result["hidden"]:
        flaws.append(f"{result['hidden']} of {result['figures']} figures are not visible")
    if result["cut"]:
        flaws.append(f"texts are cut off: {', '.join(result['cut'])}")
    if result["duplicates"]:
        flaws.append(f"{result['duplicates']} duplicate ids")
    if result["wide"] > 0:
        flaws.append(f"{result['wide']} pixels too wide")
    page.screenshot(path=str(path.with_suffix(f".{width}.png")), full_page=True)
    page.close()
    return flaws


def main() -> int:
    """Check the pages given on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--browser", help="path of Chromium; default: that of playwright")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    failed = False
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        for path in args.pages:
            for width in WIDTHS:
                flaws = flaws_of(browser, path, width)
                failed = failed or bool(flaws)
                print(f"{path} at {width} pixels: {'; '.join(flaws) or 'ok'}")
        browser.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
