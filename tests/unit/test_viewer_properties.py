"""What holds of the screen for any snapshot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcsampler.protocol.phases import Phase
from hpcsampler.viewer.bars import apportion, letter_of, shares_of, stacked_bar
from hpcsampler.viewer.cells import ASCII, UNICODE, clean, cut, fit, width, wrap
from hpcsampler.viewer.frame import View, compose
from hpcsampler.viewer.history import History
from hpcsampler.viewer.incidents import callback_lines, checkpoint_lines, straggler_lines, trace_lines
from hpcsampler.viewer.numbers import compact, duration, percent, short_duration, size
from hpcsampler.viewer.once import snapshot_json
from tests.support import snapshots

if TYPE_CHECKING:
    from hpcsampler.protocol.snapshot import Snapshot

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
labels = st.sampled_from([phase.label for phase in Phase]) | st.text(max_size=8)
phases = st.dictionaries(labels, st.floats(0, 1), max_size=6)


def mutilated(whole):
    """The same snapshot with keys gone, or with something else in their place."""

    def keep(value):
        if isinstance(value, dict):
            return st.fixed_dictionaries(
                {}, optional={key: keep(inner) | anything for key, inner in value.items()}
            )
        if isinstance(value, list):
            return st.lists(st.one_of(*[keep(one) for one in value[:2]]) if value else anything, max_size=3)
        return st.just(value) | anything

    return keep(whole)


def of_all_kinds() -> Snapshot:
    """A snapshot with all that a viewer looks at."""
    shot = snapshots.troubled()
    more = snapshots.eventful()
    shot["host"] |= more["host"]  # type: ignore[typeddict-item]
    for one in shot["ranks"]:
        one.update(snapshots.incidents(0, steady=one["rank"] == 0))  # type: ignore[typeddict-item]
        one["pipeline"] = more["ranks"][0]["pipeline"]
    return shot


broken = mutilated(json.loads(json.dumps(of_all_kinds())))
eventful = mutilated(json.loads(json.dumps(snapshots.eventful()["ranks"][1])))
views = st.builds(
    View, width=st.integers(1, 220), height=st.none() | st.integers(1, 60), age_s=st.floats(0, 1e9),
    sort=st.sampled_from(("gpu", "rank", "stall", "rate", "goodput", "util")), reverse=st.booleans(),
    paused=st.booleans(), first=st.integers(0, 1000), glyphs=st.sampled_from((UNICODE, ASCII)),
)  # fmt: skip


@given(shot=broken, view=views)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_any_snapshot_gives_a_frame_that_fits(shot, view) -> None:
    frame = compose(shot, view)
    assert all(line.cells <= view.width for line in frame.lines)
    assert all(character.isprintable() for line in frame.lines for character in line.text)
    if view.height is not None:
        assert len(frame.lines) == view.height


@given(rank=eventful, cells=st.integers(1, 220), glyphs=st.sampled_from((UNICODE, ASCII)))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_records_of_a_rank_give_a_line_at_most_each(rank, cells, glyphs) -> None:
    for lines_of in (straggler_lines, callback_lines, trace_lines, checkpoint_lines):
        lines = lines_of(rank, cells, glyphs)
        assert len(lines) <= 1
        for line in lines:
            assert line.cells <= max(cells, 13)  # the frame clips a title that is too wide
            assert line.text.isprintable()
            assert not glyphs.ascii or line.text.isascii()


@given(shot=broken)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_any_snapshot_can_be_remembered_and_printed_as_json(shot) -> None:
    History().add(shot, 17.0)
    printed = json.loads(snapshot_json(shot), parse_constant=lambda name: 1 / 0)
    assert isinstance(printed, dict)


@given(shares=phases, cells=st.integers(1, 200))
def test_a_bar_fills_its_width_and_is_true_to_one_cell(shares, cells) -> None:
    known = shares_of(shares)
    bar = "".join(segment.text for segment in stacked_bar(known, cells))
    if not known:
        assert bar == ""
        return
    assert len(bar) == cells
    total = sum(known.values())
    for label, part in apportion(known, cells).items():
        assert abs(part - known[label] / total * cells) < 1
    for letter in set(bar):
        whole = sum(share for label, share in known.items() if letter_of(label) == letter) / total * cells
        unknowns = sum(letter_of(label) == letter for label in known)
        assert abs(bar.count(letter) - whole) < unknowns + 1e-6


@given(text=st.text(max_size=60), cells=st.integers(0, 40), glyphs=st.sampled_from((UNICODE, ASCII)))
def test_texts_are_cut_and_padded_to_the_cell(text, cells, glyphs) -> None:
    cleaned = clean(text, glyphs)
    assert width(cut(cleaned, cells, glyphs)) <= cells
    assert width(fit(cleaned, cells, glyphs)) == cells
    assert width(fit(cleaned, cells, glyphs, right=True)) == cells
    assert all(width(line) <= max(cells, 1) for line in wrap(cleaned, max(cells, 1), glyphs))
    assert not glyphs.ascii or cleaned.isascii()


@given(value=st.floats(0, 1e15))
def test_numbers_fit_their_columns(value) -> None:
    assert len(compact(value)) <= 5
    assert len(size(value)) <= 6
    assert len(short_duration(value)) <= 5
    assert len(percent(value)) <= 8
    assert duration(value)
