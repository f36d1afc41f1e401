"""Code outside Trivet that settings name: in a file, in a module, or in an installed package.

    python:my_losses.py:LiftedLoss      a name in a file; the path is relative to the current folder
    python:my_losses:LiftedLoss         a name in a module on Python's path or in the current folder
    plugin:lifted                       an entry point that an installed package declares in its group "trivet.losses"

Code is imported when such a reference is read, never otherwise, and only if it is the user's own or trusted: a file or
module below the working folder, but not among installed packages, nor beside the run whose settings name it. Entry
points were installed to be named.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from trivet.runtime.arguments import nearest

PYTHON, PLUGIN = "python:", "plugin:"
INSTALLED = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}
trusted: ContextVar[bool] = ContextVar("trusted", default=False)  # whether code of others is run, too
_running: set[Path] = set()  # files whose code was let run
_holders: ContextVar[tuple[Path, ...]] = ContextVar("holders", default=())  # folders whose settings are being read


@contextmanager
def trusted_code() -> Iterator[None]:
    """Let settings run code of others, too, inside the block: what the option --trust-code does for a command."""
    token = trusted.set(True)
    try:
        yield
    finally:
        trusted.reset(token)


@contextmanager
def settings_of(folder: Path) -> Iterator[None]:
    """Read settings that a folder holds: code that came with the folder is not the user's own."""
    token = _holders.set((*_holders.get(), folder.resolve()))
    try:
        yield
    finally:
        _holders.reset(token)


def is_reference(name: object) -> bool:
    """True if a setting names something outside Trivet."""
    return isinstance(name, str) and name.startswith((PYTHON, PLUGIN))


def python_object(reference: str, *, kind: str, base: type | None = None) -> Any:
    """Import what a reference names.

    Args:
        reference: "python:MODULE:NAME", "python:FILE.py:NAME" or "plugin:NAME".
        kind: "losses", "positives", "negatives", "datasets" or "models": the entry points of packages are those of the
            group "trivet." + kind.
        base: a class from which what is found must be derived; None takes anything.

    Raises:
        ValueError: one sentence, if it cannot be found, its code cannot be imported, or it is not derived from `base`.
    """
    target = _load_entry_point(reference, kind) if reference.startswith(PLUGIN) else _load_code(reference)
    if base is not None and not (isinstance(target, type) and issubclass(target, base)):
        raise ValueError(
            f"{reference!r} must be a class derived from {base.__module__.split('.')[0]}.{base.__name__}: "
            f"got {f'the class {target.__name__}' if isinstance(target, type) else f'a {type(target).__name__}'}; "
            "derive it."
        )
    return target


def absolute(reference: str) -> str:
    """The same reference from any folder: with the whole path of a file, or of a module in the current folder."""
    if not reference.startswith(PYTHON):
        return reference
    location, name = _split_reference(reference)
    path = Path(location if location.endswith(".py") else f"{location}.py").resolve()
    return f"{PYTHON}{path}:{name}" if path.is_file() else reference


def _split_reference(reference: str) -> tuple[str, str]:
    """The file or module, and the name in it."""
    location, colon, name = reference.removeprefix(PYTHON).rpartition(":")  # a path may hold colons
    if not reference.startswith(PYTHON) or not (colon and location and name.isidentifier()):
        raise ValueError(
            f"code outside Trivet is named 'python:FILE.py:NAME', 'python:MODULE:NAME' or 'plugin:NAME': "
            f"got {reference!r}."
        )
    return location, name


def _load_code(reference: str) -> Any:
    location, name = _split_reference(reference)
    is_file, path = location.endswith(".py"), Path(location).resolve()
    if is_file and not path.is_file():
        raise ValueError(f"{reference!r} must name a file that exists: got {path}; check the path.")
    _check_trusted(reference, [path] if is_file else _module_files(location, reference))
    try:
        module = _load_file(path) if is_file else importlib.import_module(location)
    except Exception as error:  # imported code raises anything
        missing = error.name if isinstance(error, ModuleNotFoundError) and not is_file else None
        if missing and f"{location}.".startswith(f"{missing}."):  # not one that it imports
            raise ValueError(_missing_module(reference, missing)) from None
        raise ValueError(f"{reference!r} cannot be imported: {_describe(error)}; fix the code.") from error
    try:
        return getattr(module, name)
    except AttributeError:
        defined = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        raise ValueError(f"{reference!r}: {location} has no {name!r}; {nearest(name, defined)}") from None


def _check_trusted(reference: str, paths: list[Path]) -> None:
    """Raise ValueError unless code at these paths may run: it is the user's own, or code of others is trusted."""
    here = Path.cwd().resolve()
    local = bool(paths) and all(
        path in _running
        or (
            path.is_relative_to(here)
            and not any(path.is_relative_to(folder) for folder in INSTALLED)
            and not any(_came_with(path, folder, here) for folder in _holders.get())
        )
        for path in paths
    )
    if local or trusted.get():
        _running.update(paths)
        return
    received = bool(paths) and paths[0].is_relative_to(here) and _holders.get()
    reason = f"came with {_holders.get()[0]}" if received else f"is not below the working folder {here}"
    raise ValueError(
        f"{reference!r} names code that may be of others, as {paths[0] if paths else 'it'} {reason}: read it, then add "
        "--trust-code to run it (in Python, with trivet.config.trusted_code())."
    )


def _came_with(path: Path, folder: Path, here: Path) -> bool:
    """True if a file lies in a folder, or in that below the working folder in which both may have been received."""
    below = folder.relative_to(here).parts[:1] if folder.is_relative_to(here) else ()
    return path.is_relative_to(folder) or bool(below and path.is_relative_to(here / below[0]))


def _module_files(name: str, reference: str) -> list[Path]:
    """The files or folders of the outermost package of a module, none of which is imported for this."""
    _add_to_path(Path.cwd())
    importlib.invalidate_caches()  # the file may be new
    outermost = name.partition(".")[0]
    spec = importlib.util.find_spec(outermost) if outermost.isidentifier() else None
    if spec is None:
        raise ValueError(_missing_module(reference, outermost))
    files = [spec.origin] if spec.has_location and spec.origin else spec.submodule_search_locations or []
    return [Path(file).resolve() for file in files]


def _missing_module(reference: str, name: str) -> str:
    return (
        f"{reference!r} must name a module on Python's path or in the current folder: got no {name!r}; check the name, "
        "or give the path of its file, which ends in .py."
    )


def _load_file(path: Path) -> ModuleType:
    _add_to_path(path.parent)  # for what stands beside it
    importlib.invalidate_caches()  # the file may be new
    # Its own name lets worker processes find it too; not where that is taken.
    spec = None if getattr(sys.modules.get(path.stem), "__spec__", 0) is None else importlib.util.find_spec(path.stem)
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path:
        return importlib.import_module(path.stem)
    unique = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module  # before it runs: dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique]
        raise
    return module


def _load_entry_point(reference: str, kind: str) -> Any:
    name, group = reference.removeprefix(PLUGIN), f"trivet.{kind}"
    declared = {entry.name: entry for entry in entry_points(group=group)}
    if name not in declared:
        known = nearest(name, declared) if declared else "there are none; install the package that declares it."
        raise ValueError(f"{reference!r} is no entry point of an installed package in the group {group!r}; {known}")
    try:
        return declared[name].load()
    except Exception as error:  # imported code raises anything
        raise ValueError(
            f"{reference!r} ({declared[name].value}) cannot be imported: {_describe(error)}; fix the package."
        ) from error


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last, so that it hides nothing


def _describe(error: Exception) -> str:
    """An error and where it was raised, in one line."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: SyntaxError: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    frames_outside = [frame for frame in frames if frame.filename != __file__ and "importlib" not in frame.filename]
    location = f"{frames_outside[-1].filename}, line {frames_outside[-1].lineno}: " if frames_outside else ""
    return f"{location}{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}"
