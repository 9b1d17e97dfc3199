"""The documents say what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from hpcsampler import cli, errors
from hpcsampler.protocol.phases import PRODUCTIVE_PHASES, Phase
from hpcsampler.settings import Settings

ROOT = Path(__file__).parent.parent.parent


def table(path: Path, first_heading: str) -> list[list[str]]:
    """The cells of the first table whose heading row begins so."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_readme_has_every_phase_in_order():
    assert table(ROOT / "README.md", "phase") == [
        [
            f"`{phase.label}`",
            phase.letter,
            phase.meaning,
            "productive" if phase in PRODUCTIVE_PHASES else "stall",
        ]
        for phase in Phase
    ]


def test_every_setting_is_described_with_its_default():
    def shown(default: object) -> str:
        return "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"

    rows = table(ROOT / "docs" / "settings.md", "setting")
    assert [row[:3] for row in rows] == [
        [f"`{field.name}`", f"`HPCSAMPLER_{field.name.upper()}`", shown(field.default)] for field in fields(Settings)
    ]


@pytest.mark.parametrize("path", [ROOT / "docs" / "settings.md", ROOT / "README.md", ROOT / "docs" / "how-it-works.md"])
def test_flags_that_are_named_exist(path):
    known = {
        option
        for parser in _parsers(cli.build_parser())
        for action in parser._actions
        for option in action.option_strings
    }
    named = re.findall(r"(run|top|demo|doctor|daemon \w+) (--[a-z-]+)", path.read_text(encoding="utf-8"))
    for command, flag in named:
        assert flag in known, f"{command} {flag}"


def _parsers(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for below in action.choices.values():
                yield from _parsers(below)


def test_links_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_error_of_ours_has_an_exit_code():
    assert errors.HpcsamplerError.exit_code == 1
    assert errors.UsageError.exit_code == 2
