"""What of the package is seen where it is published."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
for_an_index = runpy.run_path(str(ROOT / "setup.py"))["for_an_index"]


def test_a_link_into_the_source_becomes_the_name_of_the_file() -> None:
    linked = "![A\npicture](docs/a.svg) See [this\npage](docs/b.md#part), [that](https://example.org/c), `trivet[use]`."
    said = "*A\npicture* See this\npage (`docs/b.md`), [that](https://example.org/c), `trivet[use]`."
    assert for_an_index(linked).startswith(said)


def test_the_page_on_an_index_has_no_dead_link_and_names_files_that_the_source_distribution_holds() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = for_an_index(readme)
    assert [target for target in re.findall(r"\]\(([^)]*)\)", text) if not target.startswith("https://")] == []
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)]*)\)", readme) if "://" not in target}
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").split()
    for name in linked:
        assert name.endswith(".svg") or f"`{name}`" in text
        assert (ROOT / name).is_file()
        assert name in manifest or name.split("/")[0] in manifest, f"MANIFEST.in leaves {name} out"
    assert "docs/index.md" in linked  # of which the last line speaks
