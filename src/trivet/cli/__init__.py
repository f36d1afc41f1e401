"""The command line: one file for each command."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Annotated

import typer

from trivet.cli.audit import audit
from trivet.cli.data import data
from trivet.cli.demo import demo
from trivet.cli.diagnose import diagnose
from trivet.cli.embed import embed
from trivet.cli.evaluate import evaluate
from trivet.cli.forecast import forecast
from trivet.cli.index import index
from trivet.cli.search import search
from trivet.cli.simulate import simulate
from trivet.cli.train import train

app = typer.Typer(
    name="trivet",
    help="Train embeddings that do not collapse.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Train embeddings that do not collapse."""
    if show:
        typer.echo(f"trivet {metadata.version('trivet')}")
        raise typer.Exit


for command in (demo, train, evaluate, diagnose, audit, forecast, embed, index, search):
    app.command()(command)
app.add_typer(simulate, name="simulate")
app.add_typer(data, name="data")


def main() -> None:
    """Run a command: exit code 0, 2 for a mistake the user can mend (one sentence on standard error), 1 otherwise."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="trivet", standalone_mode=False)
    except typer.TyperException as error:
        code = _say(f"{error.format_message()} See trivet --help.", error.exit_code)
    except (ValueError, OSError) as error:
        if os.environ.get("TRIVET_TRACEBACK"):
            raise
        code = _say(_sentence(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:  # a fault of ours: said in one sentence, with exit code 1
        if os.environ.get("TRIVET_TRACEBACK"):
            raise
        text = " ".join(f"{type(error).__name__}: {error}".split())
        code = _say(f"unexpected {text} (set TRIVET_TRACEBACK=1 to see where)", 1)
    if code == 130:  # what typer makes of Ctrl-C
        code = _say("stopped; a run folder keeps its checkpoints, and trivet train --resume goes on from them.", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _sentence(error: ValueError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"{error.filename} must be readable and writable: {error.strerror}; make room or give access, or choose "
            "another place (what was written before is kept)."
        )
    return " ".join(str(error).split())


def _say(sentence: str, code: int) -> int:
    print(f"trivet: {sentence}", file=sys.stderr)
    return code
