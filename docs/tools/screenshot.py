"""Pictures of the screen: the very lines that `hpcsampler top` paints, as SVG and, with a Chromium, as PNG.

python docs/tools/screenshot.py               docs/images/top-gpus and help, from simulated snapshots
python docs/tools/screenshot.py --all DIR     every screen that is worth a look, into DIR
python docs/tools/screenshot.py --live DIR    docs/images/top, of the daemon whose runtime directory is DIR: start
                                              `hpcsampler demo --seconds 120`, and this when both ranks train
"""

# ruff: noqa: INP001 - a script, not a package
from __future__ import annotations

import argparse
import copy
import math
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support import snapshots  # noqa: E402

from hpcsampler.source import SnapshotSource  # noqa: E402
from hpcsampler.viewer.cells import ASCII, UNICODE, width  # noqa: E402
from hpcsampler.viewer.frame import View, compose  # noqa: E402
from hpcsampler.viewer.help import help_page  # noqa: E402
from hpcsampler.viewer.history import BUCKET_S, BUCKETS, History  # noqa: E402
from hpcsampler.viewer.style import LOOKS, Line, colorless  # noqa: E402

CELL_X, CELL_Y, FONT = 8.4, 18, 14
MARGIN = 10
WATCH_S = 45
FAMILY = "DejaVu Sans Mono, Menlo, Consolas, monospace"


@dataclass(frozen=True)
class Terminal:
    """What a terminal makes of a style."""

    foreground: str = "#d8dce2"
    background: str = "#15181d"
    color: bool = True


DARK, LIGHT = Terminal(), Terminal("#24292f", "#ffffff")


def rgb(number: int) -> str:
    """A colour of the fixed part of the 256-colour palette."""
    if number >= 232:  # noqa: PLR2004 - the greys begin here
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    steps = (0, 95, 135, 175, 215, 255)
    red, rest = divmod(number - 16, 36)
    green, blue = divmod(rest, 6)
    return f"#{steps[red]:02x}{steps[green]:02x}{steps[blue]:02x}"


def svg(lines: tuple[Line, ...], cells: int, terminal: Terminal, caption: str) -> str:
    """The lines as a picture; a caption below them says what they are of."""
    high = len(lines) * CELL_Y + 2 * MARGIN + (CELL_Y + 4 if caption else 0)
    wide = cells * CELL_X + 2 * MARGIN
    size = f'width="{wide:.0f}" height="{high}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" {size}>',
        f'<rect width="100%" height="100%" rx="6" fill="{terminal.background}"/>',
        f'<g font-family="{FAMILY}" font-size="{FONT}" fill="{terminal.foreground}">',
    ]
    for row, line in enumerate(lines):
        x, y = float(MARGIN), MARGIN + row * CELL_Y
        for segment in line.segments:
            taken = width(segment.text) * CELL_X
            look = LOOKS[segment.style] if terminal.color else colorless(LOOKS[segment.style])
            front = terminal.foreground if look.color is None else rgb(look.color)
            back = None if look.background is None else rgb(look.background)
            if look.reverse:
                front, back = terminal.background, terminal.foreground
            if back:
                parts.append(
                    f'<rect x="{x:.1f}" y="{y}" width="{taken:.1f}" height="{CELL_Y}" fill="{back}"/>'
                )
            if look.underline:
                parts.append(
                    f'<rect x="{x:.1f}" y="{y + CELL_Y - 2}" width="{taken:.1f}" height="1" fill="{front}"/>'
                )
            if segment.text.strip():
                weight = ' font-weight="bold"' if look.bold else ""
                dim = ' opacity="0.6"' if look.dim else ""
                parts.append(
                    f'<text x="{x:.1f}" y="{y + 13.5}" fill="{front}" textLength="{taken:.1f}"'
                    f' xml:space="preserve"{weight}{dim}>{escape(segment.text)}</text>',
                )
            x += taken
    if caption:
        parts.append(
            f'<text x="{MARGIN}" y="{high - 10}" opacity="0.6" font-size="12">{escape(caption)}</text>'
        )
    return "\n".join([*parts, "</g></svg>\n"])


def png(source: Path, target: Path) -> None:
    """Render an SVG by headless Chromium, at twice its size."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium here: SVG only", file=sys.stderr)
        return
    text = source.read_text(encoding="utf-8")
    wide, high = (text.split(f'{name}="')[1].split('"')[0] for name in (" width", " height"))
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "page.html"
        page.write_text(f'<meta charset="utf-8"><body style="margin:0">{text}</body>', encoding="utf-8")
        command = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={scratch}/profile", "--force-device-scale-factor=2",
            "--default-background-color=00000000",
            f"--window-size={wide},{high}", f"--screenshot={target}", page.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=60)


def past(shot: snapshots.Snapshot) -> History:
    """A made-up past that ends in the snapshot."""
    history = History()
    for bucket in range(BUCKETS):
        then = copy.deepcopy(shot)
        for place, rank in enumerate(then["ranks"]):
            swing = (
                math.sin(bucket / (3 + place % 3) + place)
                * math.cos(bucket / 2)
                * min(1, (BUCKETS - bucket) / 8)
            )
            productive = {"step", "device", "evaluation"}
            rank["phases"] = {
                label: share * (math.exp(1.5 * swing) if label in productive else 1)
                for label, share in rank["phases"].items()
            }
        history.add(then, bucket * BUCKET_S)
    return history


def watch(directory: Path) -> tuple[snapshots.Snapshot | None, History]:
    """The last snapshot of a while, and what was before it."""
    source, history, shot = SnapshotSource(f"ipc://{directory / 'snapshots.sock'}"), History(), None
    end = time.monotonic() + WATCH_S
    while time.monotonic() < end and (found := source.wait(5)) is not None:
        shot = found
        history.add(shot, time.monotonic())
    source.close()
    return shot, history


def screens() -> dict[str, tuple[tuple[Line, ...], int, Terminal, str]]:
    """Every screen that is worth a look."""
    gpus, ranks = snapshots.eight_gpus(), snapshots.two_cpu_ranks()
    label = "SIMULATED: no GPU was at hand, all numbers are made up"
    made = {}
    for name, shot in {
        "gpus": gpus, "ranks": ranks, "troubled": snapshots.troubled(), "eventful": snapshots.eventful(),
    }.items():
        history = past(shot)
        view = View(width=120, height=32, age_s=0.2, history=history, until=history.bucket)
        for cells, height in ((80, 24), (120, 32), (200, 40)):
            made[f"{name}-{cells}"] = (
                compose(shot, replace(view, width=cells, height=height)).lines,
                cells,
                DARK,
                label,
            )
        made[f"{name}-light"] = (compose(shot, view).lines, 120, LIGHT, label)
        made[f"{name}-mono"] = (compose(shot, view).lines, 120, replace(DARK, color=False), label)
        made[f"{name}-ascii"] = (compose(shot, replace(view, glyphs=ASCII)).lines, 120, DARK, label)
        made[f"{name}-old"] = (compose(shot, replace(view, age_s=5.2)).lines, 120, DARK, label)
        made[f"{name}-paused"] = (
            compose(shot, replace(view, age_s=5.2, paused=True)).lines,
            120,
            DARK,
            label,
        )
    many = snapshots.many_ranks()
    made["many-120"] = (
        compose(many, View(width=120, height=32, first=40, history=past(many))).lines,
        120,
        DARK,
        label,
    )
    made["hostile-120"] = (compose(snapshots.hostile(), View(width=120, height=32)).lines, 120, DARK, label)
    made["waiting-80"] = (
        compose(None, View(width=80, height=24, place="/run/user/1000/hpcsampler")).lines,
        80,
        DARK,
        "",
    )
    for cells, height in ((80, 24), (120, 32)):
        made[f"help-{cells}"] = (help_page(0, cells, height, UNICODE).lines, cells, DARK, "")
    return made


def save(name: str, directory: Path, picture: tuple[tuple[Line, ...], int, Terminal, str]) -> None:
    """`name`.svg and `name`.png."""
    directory.mkdir(parents=True, exist_ok=True)
    source = directory / f"{name}.svg"
    source.write_text(svg(*picture), encoding="utf-8")
    png(source, directory / f"{name}.png")


def main() -> int:
    """Make the pictures that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", type=Path, metavar="DIR")
    parser.add_argument("--live", type=Path, metavar="DIR")
    parser.add_argument("--only", default="", help="with --all: names that begin so")
    arguments = parser.parse_args()
    images = ROOT / "docs" / "images"
    if arguments.all:
        for name, picture in screens().items():
            if name.startswith(arguments.only):
                save(name, arguments.all, picture)
    elif arguments.live:
        shot, history = watch(arguments.live)
        if shot is None:
            print(f"no daemon answers in {arguments.live}", file=sys.stderr)
            return 1
        view = View(width=120, height=28, age_s=0.1, history=history, until=history.bucket)
        view = replace(view, selected=compose(shot, view).keys[-1])  # the demo's slow rank
        save("top", images, (compose(shot, view).lines, 120, DARK, ""))
    else:
        made = screens()
        save("top-gpus", images, made["gpus-120"])
        save("help", images, made["help-120"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
