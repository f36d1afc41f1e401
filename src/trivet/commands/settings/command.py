"""`trivet settings`."""

from __future__ import annotations

from typing import Annotated

import typer

from trivet.commands.printing import print_json, print_table, print_text
from trivet.commands.shared_options import Json
from trivet.runtime.progress import show_progress


def settings(
    section: Annotated[
        str | None, typer.Argument(help="Only this section of a settings file, such as training.", show_default=False)
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="Print the JSON schema by which editors complete and check settings files: trivet settings --schema > "
            "trivet.schema.json, and #:schema ./trivet.schema.json in the first line of a settings file.",
        ),
    ] = False,
    json: Json = False,
) -> int:
    """List the settings of a run with their defaults, or print their JSON schema for editors."""
    if schema and section is not None:
        raise ValueError(f"--schema is of all sections: leave out {section}.")
    with show_progress("settings"):
        from trivet.commands.settings.run import list_settings, settings_schema  # here: it loads the training stack

        if schema:
            print_json(settings_schema())
            return 0
        listing = list_settings(section)
    if json:
        print_json({"settings": [setting._asdict() for setting in listing]})
        return 0
    for name in dict.fromkeys(setting.section for setting in listing):
        rows = [
            (setting.key, setting.default or "–", setting.description) for setting in listing if setting.section == name
        ]
        print_table(f"[{name}]" if name else "at the top", ["key", "default", ""], [], rows)
    if section in (None, "data", "model", "loss"):
        print_text(
            "Each data set, network and loss has more: docs/settings.md and docs/data.md, or trivet settings --schema."
        )
    return 0
