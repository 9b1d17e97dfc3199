"""Findings on the screen."""

from __future__ import annotations

from typing import Any

from hpcsampler.viewer.cells import ASCII, UNICODE
from hpcsampler.viewer.findings import finding_lines


def finding(number: int, code: str = "input-bound", severity: str = "high", share: float = 0.3) -> dict[str, Any]:
    return {
        "severity": severity, "code": code, "rank_key": f"k{number}", "rank": number, "text": f"{code} {share}",
        "evidence": {"share": share}, "advice": "change it",
    }


def lines(*findings: Any, glyphs: Any = UNICODE) -> list[tuple[str, str]]:
    return finding_lines({"findings": list(findings)}, glyphs)  # type: ignore[typeddict-item,arg-type]


def test_of_one_kind_the_worst_stands_for_all() -> None:
    assert lines(finding(0, share=0.2), finding(1, share=0.4), finding(2, severity="medium", share=0.9)) == [
        ("rank 1 (and 2 more): input-bound 0.4 → change it", "bad"),
    ]


def test_the_gravest_come_first() -> None:
    said = lines(finding(0, "a", "info"), finding(0, "b", "medium"), finding(0, "c", "high"))
    assert [style for _, style in said] == ["bad", "middle", "info"]


def test_a_rank_is_named_with_its_job_where_there_are_several() -> None:
    ranks = [{"rank_key": "k0", "job": "fit", "rank": 0}, {"rank_key": "k9", "job": "other", "rank": 0}]
    shot = {"findings": [finding(0)], "ranks": ranks}
    assert finding_lines(shot, UNICODE)[0][0].startswith("rank 0 of fit: ")  # type: ignore[arg-type]
    shot["ranks"] = ranks[:1]
    assert finding_lines(shot, UNICODE)[0][0].startswith("rank 0: ")  # type: ignore[arg-type]


def test_ascii_and_hostile_findings() -> None:
    assert lines(finding(0), glyphs=ASCII)[0][0].endswith("-> change it")
    said = lines(None, {"severity": "x"}, {"severity": "high"})
    assert said[0][0].startswith(f"rank {UNICODE.absent}: ")
    assert finding_lines({}, UNICODE) == []  # type: ignore[typeddict-item]
