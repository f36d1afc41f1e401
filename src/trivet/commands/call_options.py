"""Options of a command as arguments of a function: the parser of the command converts and checks them by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import curdir
from typing import TYPE_CHECKING, Any

from trivet.runtime.arguments import requirement

if TYPE_CHECKING:
    import typer

# Arguments that hold what a command reads from a file, where an option has the same name.
IN_MEMORY = ("embeddings", "labels", "gallery", "fine", "reference", "texts", "separator", "match", "split", "index")

ROWS = "pass the rows that are meant, without the others"
EMBEDDED = "pass embeddings, such as result.embed of a training or a model of yours makes them"
RESULT = "take it from the result: save, to_frame or record"
CORRECTED = "correct the labels in memory, by rows of the result"
PAIRED = "pass trivet.Pairs as the labels, with a tuple of both sides"
# Options that no function takes under this name, or not each -> what to do instead.
INSTEAD = {
    **dict.fromkeys(("table", "embedding", "codes"), "pass the vectors themselves"),
    **dict.fromkeys(("split", "skip_empty", "query"), ROWS),
    **dict.fromkeys(("texts", "images", "network", "encoder"), EMBEDDED),
    **dict.fromkeys(("pairs", "left", "right", "left_vectors", "right_vectors", "relevant"), PAIRED),
    **dict.fromkeys(("report", "per_class", "json", "sheet"), RESULT),
    **dict.fromkeys(("decisions", "relabel_above", "drop_above", "apply"), CORRECTED),
    "text": "pass the texts themselves",
    "id": "pass the vector of the item",
    "output": "pass out",
    "out": RESULT,
    "force": "nothing is written before save, which replaces a page of Trivet",
    "set": "pass settings",
    "fail_on": "read verdicts, good and collapsed of the result",
    "same_items": "rows of queries and gallery have no ids: leave equal ones out of the gallery",
    "cameras": "evaluate a file with a column camera, by trivet evaluate",
    "folds": "it is of a run or a settings file, for trivet audit and trivet train",
    "resume": "go on with a run folder by trivet train --resume",
    "data_root": "set the variable TRIVET_DATA",
    "trust_code": "call it within trivet.config.trusted_code()",
}


def parsed_options(name: str, arguments: Mapping[str, Any]) -> Any:
    """The context of a command whose options are written as the arguments of the same names say.

    Args:
        name: of the command.
        arguments: name -> value; None, what is in memory and names of no option are passed over. An option that takes a
            list with commas, or may be repeated, takes a list or a dict as well.

    Raises:
        ValueError: if a value is none that the option takes.
    """
    import typer

    from trivet.commands.group import Commands

    command, words = Commands()[name], list[str]()
    for option in command.params:
        value = None if option.name in IN_MEMORY else arguments.get(option.name)
        if option.param_type_name == "argument":
            words += [curdir] if option.required else []
        elif option.is_flag:
            words += [option.opts[0]] if value else []
        elif value != option.default and (texts := _texts(value)):
            texts = texts if option.multiple else [",".join(texts)]
            words += [word for text in texts for word in (option.opts[0], text)]
    try:
        return command.make_context(name, words)
    except typer.TyperException as error:
        wrong = "^Invalid value for '(.+?)': (?:Value error, )?"
        text = re.sub(wrong, rf"\1 must be as trivet {name} takes it: ", explained(error, arguments))
        raise ValueError(text) from None


def explained(error: typer.TyperException, arguments: Mapping[str, Any] | None = None) -> str:
    """The message of an error in options, with what an option means whose value is no number or too small.

    Args:
        arguments: name -> value, of a function; None for what was typed.
    """
    option, text = getattr(error, "param", None), error.format_message()
    needed = requirement(text)
    if option is None or needed is None:
        return text
    name, value = (option.opts[0], "") if arguments is None else (option.name, f": got {arguments[option.name]!r}")
    return f"{name} must be {needed}{value}; it means: {(option.help or '').partition('. ')[0].rstrip('.')}."


def _texts(value: Any) -> list[str]:
    """A value, each of several, or "name=value" of each in a dict, as they are written; nothing for None."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [f"{key}={each}" for key, each in value.items()]
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [*map(str, value)]
    return [str(value)]
