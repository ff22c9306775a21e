"""The page of a benchmark in a real browser: light, dark and in print, on a wide screen and on a narrow one."""

import base64
import re

import pytest
from chromium import PROGRAM, Browser, Page
from fullbore import PATIENCE, REPOSITORY, run

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not here"),
    pytest.mark.slow,
]

DRIVE = REPOSITORY / "crates/survey/tests/data/drive.json"

# The width of A4 within the margins of the page's style: 180 mm.
PAPER = 680

# Boxes that extend beyond the page's edge, unless a parent scrolls or clips them.
TOO_WIDE = """
(() => {
  const edge = document.documentElement.clientWidth + 1, found = [];
  for (const it of document.body.querySelectorAll('*')) {
    if (it.closest('svg') && it.tagName !== 'svg') continue;
    const box = it.getBoundingClientRect();
    if (!box.width || box.right <= edge && box.left >= -1) continue;
    let held = false;
    for (let above = it.parentElement; above; above = above.parentElement)
      if (getComputedStyle(above).overflowX !== 'visible') held = true;
    if (!held) found.push(`${it.tagName} ${it.className} ${Math.round(box.left)}..${Math.round(box.right)}`);
  }
  return found;
})()
"""

# The charts, with their sizes and numbers of shapes.
CHARTS = """
[...document.querySelectorAll('svg')].map(it => {
  const box = it.getBoundingClientRect();
  return [box.width, box.height, it.querySelectorAll('path, rect, line, circle, polyline, polygon').length];
})
"""

# The contrast of text and page, and the lightness of the page, from 0 to 255.
LIGHTNESS = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(document.body), root = getComputedStyle(document.documentElement);
  const clear = 'rgba(0, 0, 0, 0)';
  const back = [style.backgroundColor, root.backgroundColor].find(it => it !== clear) || 'rgb(255, 255, 255)';
  return [light(back), light(style.color)];
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile"), PATIENCE) as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    page = tmp_path_factory.mktemp("report") / "drive.html"
    run("bench", "report", DRIVE, "--html", page)
    return page


@pytest.mark.parametrize(
    ("scheme", "media", "width"),
    [
        ("light", "screen", 1280),
        ("light", "screen", 400),
        ("dark", "screen", 1280),
        ("dark", "screen", 400),
        ("light", "print", PAPER),
        ("dark", "print", PAPER),
    ],
)
def test_the_page_is_whole_at_every_width_in_light_dark_and_print(scheme, media, width, browser, report):
    page = Page(browser, report.as_uri(), width, scheme, media)
    assert page.complaints() == []
    assert page.value("document.documentElement.clientWidth") == width
    assert page.value(TOO_WIDE) == []
    assert page.value("document.documentElement.scrollWidth") <= width, "it can be scrolled sideways"
    charts = page.value(CHARTS)
    assert len(charts) == report.read_text().count("<svg") > 8
    for wide, high, shapes in charts:
        assert high > 0 and shapes > 0, charts
        # Drawn 760 wide, with letters of 12: on a telephone it scrolls sideways instead of becoming unreadable.
        assert wide <= width if width > 544 else wide <= 600, charts
        assert wide * 12 / 760 > 8 or wide < 40, (charts, "its letters cannot be read")
    back, ink = page.value(LIGHTNESS)
    assert (back < 80) == (scheme == "dark" and media == "screen"), (back, ink)
    assert abs(back - ink) > 100, "text stands out from the page"


def test_in_print_it_has_pages_and_no_chart_is_lost(browser, report):
    page = Page(browser, report.as_uri(), 1280, media="print")
    printed = base64.b64decode(page.ask("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", printed))
    assert 2 <= pages <= 30, pages


def test_the_watch_over_the_page_sees_what_is_wrong(browser, report, tmp_path):
    """The checks above can fail: with a box that is too wide, a broken script and a missing picture."""
    broken = tmp_path / "broken.html"
    wrong = '<div style="width: 3000px">x</div><script>none()</script><img src="none.png">'
    broken.write_text(report.read_text().replace("</body>", f"{wrong}</body>"))
    page = Page(browser, broken.as_uri(), 1280)
    assert len(page.value(TOO_WIDE)) == 1
    assert "none is not defined" in str(page.complaints())
