"""Write the reference of docs/command_line.md from the options: .venv/bin/python docs/make_commands.py"""

from __future__ import annotations

from enum import EnumType
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from trivet.commands.group import Commands
from trivet.commands.registry import COMMANDS

PAGE = Path(__file__).with_name("command_line.md")
BEGIN = "<!-- What follows is written by docs/make_commands.py. -->\n"
# Options that the first part describes.
COMMON = ("json", "data_root", "trust_code", "install_completion", "show_completion")
WORDS = {int: "whole number", float: "number", str: "text", Path: "path"}


def page() -> str:
    """The page: its first part as it is, and the commands under the headings of `trivet --help`."""
    commands = Commands()
    sections = [PAGE.read_text().partition(BEGIN)[0] + BEGIN]
    for heading, names in COMMANDS.items():
        sections.append(f"## {heading}\n")
        for name in names:
            sections.append(f"### trivet {name}\n\n{described(name, commands[name])}")
            for inner, command in getattr(commands[name], "commands", {}).items():
                sections.append(f"#### trivet {name} {inner}\n\n{described(f'{name} {inner}', command)}")
    return "\n".join(sections)


def described(name: str, command: Any) -> str:
    """The usage line of a command, what it does, and a table of its arguments and options."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [each for each in command.params if each not in arguments and each.name not in COMMON]
    subcommand = " ..." if getattr(command, "commands", {}) else ""
    written = "".join(
        f" {usage(parameter)}" for parameter in [*arguments, *(each for each in options if each.required)]
    )
    rows = [row(usage(each).strip("[]"), "", each) for each in arguments]
    rows += [
        row(", ".join(each.opts[::-1] if len(each.opts[-1]) < 3 else each.opts), kind(each), each) for each in options
    ]
    table = "\n| option | value | |\n|---|---|---|\n" + "".join(rows) if rows else ""
    return f"`trivet {name}{written}{subcommand}`: {' '.join(str(command.help).split())}\n{table}"


def usage(parameter: Any) -> str:
    """A parameter as a line of usage shows it."""
    if parameter.param_type_name == "option":
        return f"{parameter.opts[0]} {parameter.name.upper()}"
    name = parameter.name.upper() + (" ..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def row(name: str, values: str, parameter: Any) -> str:
    """The row of a parameter, with its default where its help does not name it."""
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    default = parameter.default
    if default not in (None, ()) and default is not False and "Default" not in text:
        text += f" Default: {default}."
    if parameter.required and parameter.param_type_name == "option":
        text += " Required."
    return f"| `{name}` | {values} | {text} |\n"


def kind(option: Any) -> str:
    """The values of an option, as words."""
    return "" if option.is_flag else values_of(option.type_descriptor.annotation)


def values_of(annotation: Any) -> str:
    """The values of a type, as words."""
    if annotation in WORDS:
        return WORDS[annotation]
    if isinstance(annotation, EnumType):
        return " or ".join(f"`{each.value}`" for each in annotation)
    inner = [each for each in get_args(annotation) if each is not NoneType]
    return " or ".join(dict.fromkeys(f"`{each}`" if isinstance(each, str) else values_of(each) for each in inner))


if __name__ == "__main__":
    PAGE.write_text(page())
