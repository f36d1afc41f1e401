"""Writing of pages: template, plot data, security policy."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trivet.io.atomic_files import write_atomic
from trivet.io.overwrite_guard import page_start
from trivet.runtime.progress import work
from trivet.runtime.record import Record
from trivet.runtime.text import noun, percents

MISSING = "–"
# The smallest bundle of plotly.js that draws lines and marks; its licence lies beside it.
_PLOTLY = "plotly/plotly-basic-4.1.1.min.js"
_DIGITS = 4  # of a number that is drawn: more than a screen can show
_IMAGE = re.compile(r"data:image/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/]+={0,2}")


def write_page(
    template: str,
    path: Path,
    context: Mapping[str, Any],
    plots: Mapping[str, Any] | None = None,
    *,
    script: str | Sequence[str] = ("dots.js", "plots.js"),
    plotly: bool = True,
    pictures: Pictures | None = None,
) -> None:
    """Write the page to `path`, whole or not at all; folders are made as needed.

    Args:
        context: what the template shows; every text is escaped there.
        plots: what the script draws, as JSON; None for a page without scripts.
        script: the files beside the templates that draw, in their order.
        plotly: whether they draw with it: it and paper.js then come before them, 1.2 MB in all.
        pictures: what the template and the plots name by number.
    """
    names = [script] if isinstance(script, str) else list(script)
    drawing = [_PLOTLY, "templates/paper.js"] if plotly else []
    files = [] if plots is None else ["templates/pictures.js", *drawing, *(f"templates/{name}" for name in names)]
    scripts = [_source(file) for file in files]
    # Only these scripts may run, whatever else gets into the page, and nothing may be requested.
    allowed = " ".join(_fingerprint(script) for script in scripts) or "'none'"
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {allowed}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    page = _environment().get_template(template)
    with work(f"writing {path.name}"):
        text = page.render(
            **context,
            plots=None if plots is None else _finite(plots) | {"pictures": list(pictures.entries) if pictures else []},
            start=Markup(page_start(template.removesuffix(".html")).decode()),
            policy=policy,
            style=Markup(_source("templates/style.css")),
            scripts=[Markup(script) for script in scripts],
        )
    # A file name that was not Unicode on disk carries lone surrogates; they become question marks.
    write_atomic(path, text.encode("utf-8", errors="replace"))


class Pictures:
    """The pictures of a page, each of which it holds once: thumbnails recur in maps and among neighbours.

    Attributes:
        places: data URI -> its number on the page.
    """

    def __init__(self) -> None:
        self.entries: dict[str, int] = {}

    def number(self, uri: str | None) -> int | None:
        """The number of a picture; None where there is none, or it is no inline one."""
        return self.entries.setdefault(uri, len(self.entries)) if uri is not None and image(uri) else None

    def some(self, uris: Sequence[str | None], most: int) -> list[int | None]:
        """The numbers of so many pictures that they take at most `most` characters, evenly spread; None for others."""
        size = sum(map(len, {uri for uri in uris if uri} - self.entries.keys()))
        count = len(uris) if size <= most else len(uris) * most // size
        return [
            self.number(uri) if (i + 1) * count // len(uris) > i * count // len(uris) else None
            for i, uri in enumerate(uris)
        ]


def percent(share: float | None) -> str:
    """A share in [0, 1] as percent with one decimal: 0.8731 is "87.3"."""
    return MISSING if share is None or not math.isfinite(share) else f"{100 * share:.1f}"


def cents(share: float) -> str:
    """A share as percent without decimals; what is not quite 0 or 100 is not rounded to it: 0.004 is "<1"."""
    return "<1" if 0 < share < 0.005 else ">99" if 0.995 <= share < 1 else f"{100 * share:.0f}"


def ends(interval: Sequence[float], word: str = " to ") -> str:
    """The ends of an interval of shares as percent without decimals."""
    return word.join(f"{100 * end:.0f}" for end in interval)


def significant(value: float | None) -> str:
    """A number with three digits."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:.3g}"


def points(difference: float | None) -> str:
    """A difference of shares as signed percentage points: -0.012 is "-1.2"."""
    if difference is None or not math.isfinite(difference):
        return MISSING
    return f"{100 * difference:+.1f}"


def decimal(value: float | None) -> str:
    """An index or a similarity with three decimals."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:.3f}"


def number(count: int | None) -> str:
    """A count with thin spaces between thousands: 1199042 is "1 199 042"."""
    return MISSING if count is None else f"{count:,}".replace(",", "\u202f")


def duration(seconds: float | None) -> str:
    """72.4 is "1 min 12 s"."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(created: object) -> str:
    """An ISO time in words; any other text stays as it is."""
    try:
        return f"{datetime.fromisoformat(str(created)):%d %B %Y, %H:%M %Z}".strip().removeprefix("0")
    except ValueError:
        return str(created)


def words(name: str) -> Markup:
    """A name that may be broken at the end of a line between its words, also where no space parts them."""
    return Markup("<wbr>").join(re.split(r"(?<=[_/.:;,|+-])(?=[\w(])", name))


def value(setting: object) -> str:
    """A setting as written in a settings file: texts bare, the rest as JSON."""
    return setting if isinstance(setting, str) else json.dumps(setting, ensure_ascii=False, default=str)


def image(uri: object) -> str | None:
    """`uri` if it is an inline picture, else None: no page ever asks for anything outside itself."""
    return uri if isinstance(uri, str) and _IMAGE.fullmatch(uri) else None


def same_length(what: str, lengths: Mapping[str, int]) -> None:
    """Check that series which belong together have one length.

    Raises:
        ValueError: naming the lengths.
    """
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise ValueError(f"{what} in the record must have one length: got {counted}; write the record again.")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trivet.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for filter_of in (
        percent,
        percents,
        cents,
        ends,
        points,
        decimal,
        significant,
        number,
        noun,
        duration,
        moment,
        words,
        value,
        image,
    ):
        environment.filters[filter_of.__name__] = filter_of
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def _source(file: str) -> str:
    return (Path(__file__).parent / file).read_text(encoding="utf-8")


def _fingerprint(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _finite(value: Any) -> Any:
    """JSON that a browser can parse (no NaN), with the digits that a plot can show."""
    if isinstance(value, Record):
        value = value.as_json()
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() else float(f"{value:.{_DIGITS}g}")
    return value
