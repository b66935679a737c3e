"""Opens reports in a headless Chromium: no message on the console, no request, figures visible, their texts whole.

    pip install playwright
    python tools/check_report.py --browser /usr/bin/chromium runs/demo/report.html

Writes a picture of each page at 1280 and at 390 pixels width beside it, and ends with status 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

WIDTHS = (1280, 390)
# Figures that cannot be seen, or reach beyond the page, texts that reach beyond their chart, ids that stand twice;
# all folded parts are opened first.
LOOK = """() => {
    document.querySelectorAll("details").forEach(part => { part.open = true; });
    const unseen = [...document.querySelectorAll("figure svg.chart, figure img")].filter(figure => {
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
    return {figures: document.querySelectorAll("figure").length, unseen: unseen.length, wide: wide,
        cut: cut.map(text => text.textContent), twice: ids.length - new Set(ids).size};
}"""


def flaws_of(browser: object, path: Path, width: int) -> list[str]:
    """What is wrong with a page at a width."""
    page = browser.new_page(viewport={"width": width, "height": 900})  # type: ignore[attr-defined]
    flaws: list[str] = []
    address = path.resolve().as_uri()
    page.on("console", lambda message: flaws.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: flaws.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: None if request.url.startswith((address, "data:")) else flaws.append(f"asks for {request.url}"),
    )
    page.goto(address)
    found = page.evaluate(LOOK)
    if not found["figures"]:
        flaws.append("there is no figure")
    if found["unseen"]:
        flaws.append(f"{found['unseen']} of {found['figures']} figures cannot be seen")
    if found["cut"]:
        flaws.append(f"texts are cut: {', '.join(found['cut'])}")
    if found["twice"]:
        flaws.append(f"{found['twice']} ids stand twice")
    if found["wide"] > 0:
        flaws.append(f"it is {found['wide']} pixels too wide")
    page.screenshot(path=str(path.with_suffix(f".{width}.png")), full_page=True)
    page.close()
    return flaws


def main() -> int:
    """Check the pages that are named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--browser", help="path of Chromium; without it the one of playwright")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    failed = False
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"])
        for path in given.pages:
            for width in WIDTHS:
                flaws = flaws_of(browser, path, width)
                failed = failed or bool(flaws)
                print(f"{path} at {width} pixels: {'; '.join(flaws) or 'fine'}")
        browser.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
