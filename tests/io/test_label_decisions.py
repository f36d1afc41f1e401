"""A decision file that is written reads back."""

from __future__ import annotations

from pathlib import Path

from trivet.io.label_decisions import Decision, read_decisions, write_decisions


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    rows = [("a, b", "keep", ""), ('say "c"', "relabel", "x\ny"), ("  d", "", "z")]
    (tmp_path / "x.csv").write_text(write_decisions(rows), newline="")
    assert read_decisions(tmp_path / "x.csv") == [
        Decision("a, b", "keep", "", 2),
        Decision('say "c"', "relabel", "x\ny", 3),
        Decision("  d", "undecided", "z", 5),
    ]
