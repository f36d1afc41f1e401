"""`trivet encoders`."""

from __future__ import annotations

from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json, print_text
from trivet.commands.shared_options import AcceptedLicence, Json
from trivet.runtime.progress import show_progress


def encoders(
    download: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Download an encoder from the Hugging Face hub into its cache: one of the list, timm:NAME, or "
            "text:OWNER/NAME. May be repeated.",
        ),
    ] = None,
    accept_licence: AcceptedLicence = None,
    json: Json = False,
) -> int:
    """List the pretrained encoders that training can begin from, and which of them are on this machine."""
    with show_progress("looking for encoders"):
        from trivet.commands.encoders.run import any_encoder, downloaded, listed  # here: they load the training stack

    if download:
        rows = [downloaded(any_encoder(name), accept_licence or ()) for name in download]
        if json:
            print_json({"downloaded": rows})
        else:
            for row in rows:
                echo(f"{row['name']} is in {row['folder']}, revision {row['revision']}")
        return 0
    rows = listed()
    if json:
        print_json({"encoders": rows})
        return 0
    echo("name, whether it is on this machine, download, licence, and items a second on two cores of a CPU:")
    echo("images of 224 x 224 pixels or short texts; about: estimated from the size of the network, not measured.")
    for kind in ("images", "texts"):
        echo()
        echo(f"encoders of {kind}")
        for row in rows:
            if row["kind"] == kind:
                where = "here" if row["folder"] else "-"
                speed = f"{'' if row['measured'] else 'about '}{row['per_second']}"
                licence = row["licence"] + ("" if row["commercial"] else " (not commercial)")
                echo(f"{row['name']:<22} {where:<5} {row['megabytes']:>3} MB  {licence:<12} {speed:>9} a second")
                print_text(f"trained on {row['trained_on']}. {row['warning']}", indent=4)
    echo()
    echo("trivet encoders --download NAME fetches one")
    return 0
