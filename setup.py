"""The long description of the package: README.md, whose links lead into the source and nowhere else.

Everything else stands in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^()\s]+)\)")
NOTE = "Files that are named here, such as `docs/index.md`, are in the source distribution.\n"


def for_an_index(readme: str) -> str:
    """The text for a page without these files beside it: each relative link becomes its words and the file's name.

    A picture becomes its description.
    """

    def plain(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if re.match(r"\w+:", target):
            return link[0]
        return f"*{words}*" if picture else f"{words} (`{target.partition('#')[0]}`)"

    return f"{LINK.sub(plain, readme)}\n{NOTE}"


if __name__ == "__main__":
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    setup(long_description=for_an_index(text), long_description_content_type="text/markdown")
