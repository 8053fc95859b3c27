"""The page in a real browser: what it makes of hostile names, whether its style applies, and how wide it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zlib
from collections.abc import Mapping
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from tests.unit.collector.reports.html.pages import EVIL, data_of, evil_data, page_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, DESK = 390, 1200

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: apt-get install chromium"),
    pytest.mark.timeout(240),
]

LOOK = """
const seen = {};
for (const frame of document.querySelectorAll("iframe")) {
  const page = frame.contentDocument, all = [...page.querySelectorAll("*")];
  seen[frame.title] = {
    elements: [...new Set(all.map(e => [e.tagName, ...e.getAttributeNames()].join(" ")))],
    text: page.body.innerText,
    table: page.body.textContent,
    ran: frame.contentWindow.zzRan === true || typeof frame.contentWindow.zz === "function",
    wide: page.documentElement.scrollWidth - frame.clientWidth,
    back: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    charts: [...page.querySelectorAll("svg.chart")].map(e => e.getBoundingClientRect().width),
  };
}
const out = document.createElement("pre");
out.id = "seen";
out.textContent = JSON.stringify(seen);
document.body.append(out);
"""


def chromium(folder: Path, *options: str) -> str:
    command = [
        CHROMIUM or "", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}", *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def looked_at(folder: Path, pages: Mapping[str, str], width: int, *options: str) -> Mapping[str, Any]:
    """What the browser has made of each page, in a frame so wide."""
    frames = "".join(
        f'<iframe title="{name}" width="{width}" height="900" srcdoc="{escape(page)}"></iframe>'
        for name, page in pages.items()
    )
    path = folder / "frames.html"
    text = f'<!doctype html><meta charset="utf-8"><body>{frames}<script>onload = () => {{{LOOK}}}</script>'
    path.write_text(text, encoding="utf-8")
    dom = chromium(folder, *options, "--dump-dom", path.as_uri())
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S)
    assert found is not None, dom[-500:]
    seen: Mapping[str, Any] = json.loads(unescape(found[1]))
    assert set(seen) == set(pages)
    return seen


# case G06
def test_hostile_names_are_visible_text(tmp_path: Path) -> None:
    pages = {"plain": page_of(data_of(3))} | {str(i): page_of(evil_data(3, name)) for i, name in enumerate(EVIL)}
    seen = looked_at(tmp_path, pages, DESK)
    known = set(seen["plain"]["elements"]) | {"P class", "BDI"}
    for i, name in enumerate(EVIL):
        one = seen[str(i)]
        assert set(one["elements"]) <= known, name
        assert one["text"].count(name) > 30, name
        assert one["table"].count(name) > one["text"].count(name), "and in what is folded"
        assert not one["ran"], name
    assert not [tag for tag in known if tag.split()[0] in {"SCRIPT", "B", "IFRAME", "IMG", "A onfocus"}]


def test_a_script_and_a_foreign_style_on_the_page_do_nothing(tmp_path: Path) -> None:
    """Whatever got onto it: the policy is a second wall behind the escaping."""
    evil = "<script>window.zzRan = true</script><style>body { background: rgb(1, 2, 3) }</style>"
    evil += '<div style="width: 3000px">wide</div>'
    page = page_of(data_of(2))
    without = re.sub(r"<meta http-equiv=.*?>", "", page)
    pages = {name: text.replace("<main>", f"<main>{evil}") for name, text in (("page", page), ("without", without))}
    seen = looked_at(tmp_path, pages, DESK)
    assert (seen["without"]["ran"], seen["without"]["back"]) == (True, "rgb(1, 2, 3)"), "it would have"
    assert not seen["page"]["ran"]
    assert seen["page"]["back"] == "rgb(246, 247, 249)"
    assert seen["page"]["wide"] <= 0 < seen["without"]["wide"]


@pytest.mark.parametrize("width", [320, PHONE, DESK])
def test_nothing_scrolls_sideways(tmp_path: Path, width: int) -> None:
    long = "w" * 128
    pages = {"plain": page_of(data_of(3)), "long": page_of(evil_data(3, long)), "empty": page_of(data_of(0))}
    seen = looked_at(tmp_path, pages, width)
    assert {name: one["wide"] for name, one in seen.items() if one["wide"] > 0} == {}
    assert min(seen["plain"]["charts"]) > 200, "charts can be read"


def test_light_and_dark(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(page_of(data_of(3)), encoding="utf-8")
    colours = []
    for scheme in (1, 0):
        picture = tmp_path / f"{scheme}.png"
        chromium(
            tmp_path, f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}",
            "--window-size=800,600", page.as_uri(),
        )  # fmt: skip
        colours.append(first_pixel(picture.read_bytes()))
    assert colours == [(0xF6, 0xF7, 0xF9), (0x10, 0x16, 0x1D)], "the style applies: its digest is right"


def first_pixel(png: bytes) -> tuple[int, int, int]:
    """Of a picture of 8 bits a channel: no filter changes its first pixel."""
    data, at = b"", 8
    while at < len(png):
        length, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        data += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    red, green, blue = zlib.decompressobj().decompress(data, 64)[1:4]
    return red, green, blue
