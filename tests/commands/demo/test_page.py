from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.pages import page_words, write_demo_report


def over_seeds(mean: float) -> dict[str, Any]:
    return {"mean": mean, "std": 0.01, "values": [mean - 0.01, mean, mean + 0.01]}


def demo(raw: float) -> dict[str, Any]:
    return {
        "text": ["One finding."],
        "results": [
            {"positives": positives, "split": "unseen", "level": "digit", "recall@1": over_seeds(mean)}
            for positives, mean in (("random", 0.7), ("easy", 0.8))
        ],
        "references": [{"name": "raw pixels", "split": "unseen", "level": "digit", "recall@1": over_seeds(raw)}],
        "collapse": {"random": over_seeds(0.1), "easy": over_seeds(0.55555)},
        "gains": {"unseen": [0.1, -0.02, 0.05]},
    }


def page_text(record: dict[str, Any], folder: Path) -> str:
    write_demo_report(record, folder / "demo.html")
    return page_words(folder / "demo.html")


def test_it_shows_means_spreads_gains_and_the_index(tmp_path: Path) -> None:
    text = page_text(demo(raw=0.75), tmp_path)
    assert text.index("One finding.") < text.index("In numbers")
    assert "random positives 70.0 ± 1.0 easy positives 80.0 ± 1.0 raw pixels 75.0 ± 1.0" in text
    assert re.search(r"digits it never saw: \+10\.0 , -2\.0 , \+5\.0", text)
    assert "0.556 with easy positives ± 0.010 over 3 seeds: 0.546, 0.556, 0.566" in text


@pytest.mark.parametrize(("raw", "said"), [(0.75, False), (0.8, False), (0.8124, True)])
def test_it_says_when_raw_pixels_do_better_than_both_networks(raw: float, said: bool, tmp_path: Path) -> None:
    text = page_text(demo(raw), tmp_path)
    assert ("The raw pixels do better here" in text) == said
    assert ("By digit on digits it never saw: raw pixels 81.2 %, best network 80.0 %." in text) == said


def test_missing_parts_are_left_out(tmp_path: Path) -> None:
    text = page_text({}, tmp_path)
    for part in ("What this shows", "Two embeddings", "How collapsed", "In numbers", "Settings", "Environment"):
        assert part not in text


def test_a_map_with_series_of_different_length_is_refused(tmp_path: Path) -> None:
    record = {"maps": {"easy": {"points": [[0, 0], [1, 1]], "digit": [1, 2], "parity": [1]}}}
    with pytest.raises(ValueError, match=r"map with easy positives .* got 2 points, 2 digits, 1 parities"):
        write_demo_report(record, tmp_path / "demo.html")


def test_the_settings_it_proposes_are_toml(tmp_path: Path) -> None:
    write_demo_report({}, tmp_path / "demo.html")
    html = (tmp_path / "demo.html").read_text(encoding="utf-8")
    settings = tomllib.loads(re.findall(r"<pre><code>(.*?)</code></pre>", html, re.DOTALL)[0])
    assert settings["data"] == {"name": "folder", "root": "photos"}
    assert settings["loss"] == {"name": "triplet", "positives": "easy"}
