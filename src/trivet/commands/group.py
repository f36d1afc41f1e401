"""The program `trivet`, which imports a command when it is asked for it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trivet.commands.printing import echo
from trivet.commands.registry import COMMANDS
from trivet.runtime.version import __version__

MODULES = {name: module for names in COMMANDS.values() for name, module in names.items()}
WIDEST = max(map(len, MODULES))


class Commands(Mapping[str, Any]):
    """Name -> command, which is imported when it is read."""

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)

    def __getitem__(self, name: str) -> Any:
        return _parsed(name)


class Group(TyperGroup):
    """The commands under their headings."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()  # type: ignore[assignment]  # only read from

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, names in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(WIDEST), _summary(_command(name))) for name in names])


@cache
def _parsed(name: str) -> Any:
    """The command with the parser of its options, which takes long to make."""
    command = _command(name)
    if not isinstance(command, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(name)(command)
        command = app
    return typer.main.get_command(command)


def _command(name: str) -> Any:
    return getattr(import_module(MODULES[name]), name)


def _summary(command: Any) -> str:
    text = command.info.help if isinstance(command, typer.Typer) else inspect.getdoc(command)
    return str(text).partition("\n")[0]


app = typer.Typer(
    cls=Group,
    name="trivet",
    help="Train embeddings that do not collapse.",
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
        echo(f"trivet {__version__}")
        raise typer.Exit
