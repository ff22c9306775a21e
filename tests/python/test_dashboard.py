"""The dashboard in a real browser: a recording by clicks, a loss in red, and a daemon that is restarted."""

import time

import pytest
import wire
from chromium import PROGRAM, Browser, Page
from fullbore import PATIENCE, ask
from station import Station, new_source

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not here")

STATE = "document.querySelector('.state strong')?.textContent"
FRAMES = 900

# Controls without a name that a screen reader could say, and cells of a table without a heading.
NAMELESS = """
[...document.querySelectorAll('button, input, select, textarea, canvas, svg[role], a, meter, section, dialog')].filter((it) => {
  const text = it.matches('select, textarea') ? '' : it.textContent.trim();
  const named = it.getAttribute('aria-label') || text || it.labels?.[0]?.textContent.trim();
  const by = it.getAttribute('aria-labelledby');
  return !(named || (by && document.getElementById(by)?.textContent.trim())) && it.id !== 'confirm-yes';
}).map((it) => it.outerHTML.slice(0, 100))
"""

# The contrast of each text with what is behind it, where it is less than WCAG's 4.5.
FAINT = """
(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).map((it) => (it / 255 <= 0.03928 ? it / 255 / 12.92 : ((it / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (it) => {
    for (; it; it = it.parentElement) {
      const colour = getComputedStyle(it).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const it of document.body.querySelectorAll('*')) {
    const text = [...it.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || !it.getBoundingClientRect().width || it.disabled) continue;
    const [one, other] = [light(getComputedStyle(it).color), light(behind(it))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < 4.5) found.push(`${it.tagName} ${it.className} ${it.textContent.slice(0, 30)} ${contrast.toFixed(2)}`);
  }
  return found;
})()
"""


def until(page, expression, wanted=True):
    """Waits until an expression of the page has a value."""
    end = time.monotonic() + PATIENCE
    while (value := page.value(expression)) != wanted:
        assert time.monotonic() < end, (expression, value, page.value("document.body.innerText"), page.complaints())
        time.sleep(0.05)


def types(page, **fields):
    """Types into the fields of the form, as a keyboard does."""
    for name, text in fields.items():
        page.value(f"document.querySelector('[name={name}]').focus()")
        page.ask("Input.insertText", text=text)


def clicks(page, selector):
    """Clicks in the middle of an element."""
    page.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
    box = page.value(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])(document.querySelector({selector!r}).getBoundingClientRect())")
    for kind in ("mousePressed", "mouseReleased"):
        page.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)


def errors(page):
    """Complaints of the console, apart from those about a daemon that is away, and from Chromium's own warnings.

    Chromium warns of a WebSocket that the page closes while it still connects, and of WebGL without a graphics card.
    """
    known = ("ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY", "closed before the connection", "'source': 'rendering'")
    told = [str(it) for it in page.complaints()]
    return [it for it in told if not any(text in it for text in known)]


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "profile", PATIENCE) as browser:
        yield browser


def test_a_recording_is_started_and_stopped_by_clicks_and_a_lost_packet_turns_its_row_red(store, tmp_path, browser):
    port, source = new_source()
    frames = wire.run_of_frames(FRAMES)
    with Station(store, tmp_path / "state") as station:
        page = Page(browser, station.told["login"], 1200)
        until(page, STATE, "IDLE")
        assert page.value("location.hash") == "#now", "the code stays in the address"
        types(page, source=source, session="test", scan="one", buffer="64MiB")
        clicks(page, "#start button")
        until(page, f"['ARMED', 'RECORDING'].includes({STATE})")
        wire.send(frames[:100], port)
        until(page, f"document.querySelector('.running tbody tr')?.textContent.includes('{port}')")
        until(page, "document.querySelector('.running tbody tr').className", "")
        assert page.value("document.querySelector('.state').className") == "state recording"
        before = page.value("getComputedStyle(document.querySelector('.running tbody td')).color")
        wire.send(frames[101:800], port)
        until(page, "document.querySelector('.running tbody tr').className", "lost")
        assert "1 missing" in page.value("document.querySelector('.running tbody tr').textContent")
        assert "LOST" in page.value("document.title")
        red, green, blue = map(
            float, page.value("getComputedStyle(document.querySelector('.running tbody td')).color.match(/[0-9.]+/g)")[:3]
        )
        assert red > 2 * max(green, blue) and before != f"rgb({red}, {green}, {blue})"
        types(page, text="on source")
        clicks(page, ".running form button")
        until(page, "document.querySelector('[name=text]').value", "")
        wire.send(frames[800:], port)
        until(page, "document.querySelectorAll('.running tbody td')[4].textContent", str(FRAMES - 1))
        assert page.value(NAMELESS) == [] and page.value(FAINT) == []
        clicks(page, "button.stop")
        until(page, "document.querySelector('dialog').open")
        clicks(page, "#confirm-yes")
        until(page, STATE, "IDLE")
        until(page, "document.querySelector('#ended-title + ul').textContent.includes('test_one: ')")
        assert page.value("document.querySelector('#ended-title + ul').textContent").count("1 of 900 frames") == 1
        page.value("location.hash = '#scans'")
        until(page, "document.querySelector('tbody tr')?.textContent.includes('test_one')")
        until(page, "document.querySelector('tbody tr').className", "lost")
        clicks(page, "tbody button")
        until(page, "document.querySelector('#jobs-title + ul').textContent.includes('test_one: intact')")
        assert page.value(NAMELESS) == [] and page.value(FAINT) == []
        assert errors(page) == []
    info = ask("info", "test_one", "--store", store)
    assert [marker["text"] for marker in info["markers"]] == ["on source"]
    assert info["lost"] == 1


def test_the_page_finds_the_restarted_daemon_again(store, tmp_path, browser):
    port, source = new_source()
    state = tmp_path / "state"
    with Station(store, state) as first:
        page = Page(browser, first.told["login"], 400, scheme="dark")
        until(page, STATE, "IDLE")
        first.start(source)
        wire.send(wire.run_of_frames(FRAMES), port)
        until(page, STATE, "RECORDING")
        assert page.value(FAINT) == []
        first.kill()
        until(page, "document.querySelector('#connection').className", "lost")
    with Station(store, state, first.port) as second:
        until(page, "document.querySelector('#connection').textContent", "connected")
        until(page, STATE, "RECORDING")
        until(page, "document.querySelectorAll('.running tbody td')[4].textContent", str(FRAMES))
        # A second link in a browser that is logged in already.
        other = Page(browser, second.ask("POST", "/api/v1/login-links").json["url"], 400)
        until(other, STATE, "RECORDING")
        assert other.value("document.querySelector('#problem').textContent") == ""
        # A phone shows the page without moving it sideways.
        assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        (recording,) = second.ask("GET", "/api/v1/recordings").json
        second.stop(recording["id"])
        until(page, STATE, "IDLE")
        assert errors(page) == []


def test_a_viewer_sees_and_changes_nothing(store, tmp_path, browser):
    with Station(store, tmp_path / "state") as station:
        page = Page(browser, f"http://127.0.0.1:{station.port}/", 1000)
        until(page, "document.activeElement.name", "token")
        types(page, token="the-secret-of-the-viewer")
        for kind in ("rawKeyDown", "char", "keyUp"):
            page.ask("Input.dispatchKeyEvent", type=kind, key="Enter", windowsVirtualKeyCode=13, text="\r" if kind == "char" else "")
        until(page, STATE, "IDLE")
        assert page.value("document.querySelector('#who').textContent") == "viewer, viewer"
        assert page.value("document.querySelectorAll('#start, main button').length") == 0
