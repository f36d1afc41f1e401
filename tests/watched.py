"""A page in a real browser, and what no page may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(2)</script>",
    "<b><a href='//e.org'>n</a>",  # short enough to stand whole in a plot, in which Plotly would make it a bold link
    "&lt;b&gt; &amp; {{ 7 * 7 }}{% raw %} %{x}",
    "Ωmega 猫 \u202eleft\u202c \u2028\u2029 \udcff",
    "x" * 400,
    "'; alert(4); //",
]


class Watched:
    """A page, and everything it does that a report must not do."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.offences: list[str] = []
        address = path.as_uri()
        self.page.on("dialog", lambda dialog: (self.offences.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("console", lambda message: self.offences.append(f"console {message.text}"))
        self.page.on("pageerror", lambda error: self.offences.append(f"error {error}"))
        self.page.on(
            "request",
            lambda request: (
                None
                if request.url == address or request.url.startswith("data:")
                else self.offences.append(f"request {request.url}")
            ),
        )
        self.page.goto(address)

    def plot(self, title: str) -> list[dict[str, Any]]:
        """The traces of the plot of that title."""
        holder = self.page.locator("figure", has=self.page.get_by_text(title, exact=True)).locator(".plot")
        return holder.evaluate(
            "plot => plot.data.map(({ name, mode, x, y, hovertext, fill }) => ({ name, mode, x, y, hovertext, fill }))"
        )
