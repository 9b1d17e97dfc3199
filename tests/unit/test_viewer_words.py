"""Numbers, styles and small decisions of the viewer."""

from __future__ import annotations

import pytest

from hpcsampler.protocol.phases import Phase
from hpcsampler.viewer.bars import BAR_ORDER
from hpcsampler.viewer.cells import ASCII, UNICODE, clean, glyphs_for, width
from hpcsampler.viewer.help import help_page
from hpcsampler.viewer.numbers import (
    compact,
    count,
    duration,
    fine_percent,
    number,
    percent,
    short_duration,
    size,
)
from hpcsampler.viewer.style import LOOKS, PHASE_LOOK, level, to_text
from hpcsampler.viewer.words import cause_cell


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("0 %", 0),
        ("<1 %", 0.001),
        ("1 %", 0.0051),
        ("42 %", 0.42),
        ("99 %", 0.9951),
        ("100 %", 1.0),
        ("387 %", 3.87),
    ],
)
def test_percent_rounds_neither_to_nothing_nor_to_all(shown, value) -> None:
    assert percent(value) == shown


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("0.00", 0),
        ("0.08", 0.08),
        ("9.99", 9.994),
        ("10.0", 9.996),
        ("99.9", 99.94),
        ("100", 99.96),
        ("1234", 1234.4),
        ("10.0k", 10_000),
        ("123k", 123_456),
        ("1.23M", 1_234_567),
    ],
)
def test_rates_take_five_characters(shown, value) -> None:
    assert compact(value) == shown


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("0B", 0),
        ("512B", 512),
        ("1.0K", 1024),
        ("99.9K", 102_300),
        ("100K", 102_380),
        ("1.0M", 1024 * 1024 - 1),
        ("80.0G", 80 << 30),
        ("1.0T", 1 << 40),
    ],
)
def test_sizes_are_binary(shown, value) -> None:
    assert size(value) == shown


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("0.0 s", -1),
        ("3.2 s", 3.21),
        ("10 s", 9.96),
        ("59 s", 59.4),
        ("1 min", 59.6),
        ("5 min 3 s", 303),
        ("2 h 14 min", 8040),
        ("3 d", 3 * 86400 + 100),
        ("3 d 4 h", 3 * 86400 + 4 * 3600),
    ],
)
def test_durations_have_two_units(shown, value) -> None:
    assert duration(value) == shown


def test_short_durations_have_one_unit() -> None:
    assert [short_duration(value) for value in (0.24, 42, 600, 7200, 400_000)] == [
        "0.2 s",
        "42 s",
        "10 m",
        "2 h",
        "5 d",
    ]


def test_overheads_keep_their_digits() -> None:
    assert [fine_percent(value) for value in (0, 0.00002, 0.00021, 0.05, 0.5)] == [
        "0.00 %",
        "<0.01 %",
        "0.02 %",
        "5.00 %",
        "50 %",
    ]


def test_thousands_stand_apart() -> None:
    assert count(1_234_567) == "1 234 567"


def test_what_is_no_number_is_unknown() -> None:
    wrong = {"a": None, "b": True, "c": "1", "d": float("nan"), "e": float("inf"), "f": 10**400}
    assert [number(wrong, key) for key in (*wrong, "absent")] == [None] * 7
    assert number("no mapping", "a") is None


def test_escapes_and_controls_never_pass() -> None:
    assert clean("\x1b[31mred\x07", UNICODE) == "?[31mred?"
    assert clean("a\nb\tc", UNICODE) == "a?b?c"
    assert clean("\u202eabc\u200b", UNICODE) == "abc"
    assert clean("größe", ASCII) == "gr??e"
    assert clean("\ud800", UNICODE) == "?"
    assert clean(None, UNICODE) == ""


def test_wide_characters_take_two_cells() -> None:
    assert width("训练") == 4
    assert width("🚀") == 2
    assert width("é") == 1


@pytest.mark.parametrize(
    ("encoding", "environ", "force", "plain"),
    [
        ("utf-8", {}, False, False),
        ("UTF8", {"LANG": "de_DE.UTF-8"}, False, False),
        ("utf-8", {"LC_ALL": "C"}, False, True),
        ("ascii", {}, False, True),
        (None, {}, False, True),
        ("latin-1", {}, False, True),
        ("utf-8", {}, True, True),
        ("utf-8", {"LC_ALL": "C.UTF-8", "LANG": "C"}, False, False),
    ],
)
def test_ascii_where_the_terminal_may_have_nothing_else(encoding, environ, force, plain) -> None:
    assert glyphs_for(encoding, environ, force_ascii=force).ascii is plain


def test_utilisation_splits_at_10_and_75_percent() -> None:
    assert [level(value) for value in (0.0, 0.099, 0.1, 0.749, 0.75, 1.0)] == [
        "bad",
        "bad",
        "middle",
        "middle",
        "good",
        "good",
    ]


def luminance(color: int) -> float:
    if color >= 232:
        red = green = blue = 8 + 10 * (color - 232)
    else:
        steps = (0, 95, 135, 175, 215, 255)
        at = color - 16
        red, green, blue = steps[at // 36], steps[at // 6 % 6], steps[at % 6]

    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


def contrast(one: int, other: int) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_letters_read_on_their_bar() -> None:
    for phase, look in PHASE_LOOK.items():
        assert contrast(look.color, look.background) >= 4.5, phase
    assert len({look.background for look in PHASE_LOOK.values()}) == len(Phase)


def test_texts_read_on_light_and_on_dark() -> None:
    for name, look in LOOKS.items():
        if look.color is not None and look.background is None:
            assert contrast(look.color, 16) >= 3.5, name
            assert contrast(look.color, 231) >= 3.5, name


def test_every_phase_is_in_the_bar_once() -> None:
    assert sorted(BAR_ORDER) == sorted(Phase)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12), (200, 50)])
def test_help_explains_every_letter(size) -> None:
    cells, height = size
    seen = ""
    for first in range(40):
        page = help_page(first, cells, height, UNICODE)
        assert len(page.lines) == height
        assert all(line.cells <= cells for line in page.lines)
        seen += to_text(page.lines)
    for phase in Phase:
        assert f" {phase.letter}  {phase.label}" in seen
    assert "quit" in seen


def test_help_fits_the_smallest_usual_terminal() -> None:
    page = help_page(0, 80, 24, UNICODE)
    assert "of" not in page.lines[-1].text
    assert not any("…" in line.text for line in page.lines)


def test_each_phase_is_told_apart_in_letter_name_and_words() -> None:
    def said(phase: Phase) -> str:
        return cause_cell({"top_cause": {"phase": phase.label, "share": 0.4}}, UNICODE)[0]

    assert len({said(phase) for phase in Phase}) == len(Phase)
    assert all(said(phase).endswith(" 40 %") for phase in Phase)
    assert not any(said(phase).startswith(f"in {phase.label}") for phase in Phase)  # words, not only its name


def test_what_the_daemon_writes_reads_in_ascii() -> None:
    assert clean("f([…]) — x: [8] → [4]", ASCII) == "f([...]) - x: [8] -> [4]"
    assert clean("训 →", ASCII) == "? ->"
