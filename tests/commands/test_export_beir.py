"""`trivet data export-beir`: a table of pairs becomes a folder that reads the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from trivet.io.beir import read_beir


def test_a_table_becomes_a_folder(run_command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    table, folder = tmp_path / "faq.csv", tmp_path / "faq"
    table.write_text("de,en,split\nhallo,hello,train\nwelt,world,test\n")
    code, _, error = run_command("data", "export-beir", table, "-o", folder, "--left", "de")
    assert code == 2
    assert "name them with --left and --right" in error
    command = ["data", "export-beir", table, "-o", folder, "--left", "de", "--right", "en"]
    assert run_command(*command)[:2] == (0, f"{folder}: 2 queries, 2 documents, 2 pairs\n")
    assert list(read_beir(folder).left.contents) == ["hallo", "welt"]
    assert sorted(file.name for file in (folder / "qrels").iterdir()) == ["test.tsv", "train.tsv"]
    code, _, error = run_command(*command)
    assert code == 2
    assert "--force" in error
    assert json.loads(run_command(*command, "--force", "--json")[1])["documents"] == 2
