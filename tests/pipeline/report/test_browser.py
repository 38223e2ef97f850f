"""The page in a real browser: nothing is loaded, nothing is complained about, and nothing sticks out of the window.

Skipped where there is no Chromium. What the browser complains about it writes to its log: the page's own policy makes
every load and every script such a complaint, and a page that tries both shows that the test would see it.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from seriatim.pipeline.report import render
from tests.pipeline.report.cases import HOSTILE, whole_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ANSWER_S = 240  # a cold start on a busy machine

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian and Ubuntu: apt install chromium)")


def browse(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page without a window."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--disable-gpu",
        "--disable-quic",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--disable-sync",
        "--no-first-run",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),  # it refuses to run as root with one
        *options,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=True)


def complaints(log: str) -> list[str]:
    return [line for line in log.splitlines() if "CONSOLE" in line]


def test_the_browser_has_nothing_to_complain_about(tmp_path: Path) -> None:
    html, _ = render(whole_page(HOSTILE))
    page = tmp_path / "page.html"
    page.write_text(html, encoding="utf-8")
    shot = tmp_path / "shot.png"
    log = browse(page, tmp_path, f"--screenshot={shot}", "--window-size=1280,2400").stderr
    assert complaints(log) == []
    from PIL import Image

    with Image.open(shot) as pixels:
        assert pixels.size == (1280, 2400)
        assert len(pixels.resize((160, 300), Image.Resampling.NEAREST).getcolors(48_000) or ()) > 20, "blank"

    bad = html.replace("</body>", '<img src="http://127.0.0.1:9/x.png"><script>1</script></body>')
    page.write_text(bad, encoding="utf-8")
    log = browse(page, tmp_path, f"--screenshot={shot}", "--window-size=1280,400").stderr
    assert len(complaints(log)) >= 2, log


@pytest.mark.parametrize("name", ["orders", "a-name-without-a-space-" * 12])
def test_nothing_sticks_out_of_a_narrow_window(tmp_path: Path, name: str) -> None:
    html, _ = render(whole_page(name))
    without_policy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    measure = "document.title = 'measured ' + innerWidth + ' ' + document.documentElement.scrollWidth"
    inner = tmp_path / "inner.html"
    inner.write_text(
        without_policy.replace(
            "</body>", f"<script>{measure}; parent.postMessage(document.title, '*')</script></body>"
        ),
        encoding="utf-8",
    )
    outer = tmp_path / "outer.html"  # windows have a least width, frames do not
    outer.write_text(
        "<!DOCTYPE html><title>none</title><script>onmessage = told => { document.title = told.data }</script>"
        f'<iframe src="{inner.as_uri()}" style="width:360px;height:700px;border:0"></iframe>',
        encoding="utf-8",
    )
    dom = browse(outer, tmp_path, "--dump-dom", "--virtual-time-budget=10000").stdout
    found = re.search(r"<title>measured (\d+) (\d+)</title>", dom)
    assert found, dom[:500]
    assert found.group(1) == "360"
    assert int(found.group(2)) <= 360
