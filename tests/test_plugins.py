"""Code outside Trivet that settings name: found, imported once, or one sentence that says why not."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trivet.config import plugins
from trivet.config.plugins import absolute, is_reference, python_object, settings_of, trusted_code

CODE = """
import beside_it

class Thing:
    value = beside_it.VALUE

class Derived(dict):
    pass

NUMBER = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = list(sys.path)
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "my_things.py").write_text(CODE)
    (tmp_path / "things" / "beside_it.py").write_text("VALUE = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_running", set())
    yield tmp_path
    for name, module in list(sys.modules.items()):  # libraries stay: some cannot be imported twice
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path[:] = path


def test_a_name_in_a_file(folder: Path) -> None:
    found = python_object("python:things/my_things.py:Thing", kind="losses")
    assert found.value == 7
    assert python_object(f"python:{folder}/things/my_things.py:Thing", kind="losses") is found  # imported once
    assert sys.modules[found.__module__].Thing is found  # so that it can be pickled


def test_a_name_in_a_module_of_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "things")
    found = python_object("python:my_things:Thing", kind="losses")
    assert found.value == 7
    assert python_object("python:my_things.py:Thing", kind="losses") is found
    with pytest.raises(ValueError, match=r"collections/__init__\.py is not below the working folder .* --trust-code"):
        python_object("python:collections.abc:Mapping", kind="losses")
    with trusted_code():
        assert python_object("python:collections.abc:Mapping", kind="losses").__name__ == "Mapping"


def test_two_files_of_one_name_are_two_modules(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "torch.py").write_text(f"NAME = {name!r}\n")  # nor does one hide an installed module
    assert python_object("python:one/torch.py:NAME", kind="losses") == "one"
    assert python_object("python:two/torch.py:NAME", kind="losses") == "two"
    import torch

    assert torch.ones(1).item() == 1


def test_nothing_is_imported_before_it_is_named(folder: Path) -> None:
    (folder / "loud.py").write_text("raise RuntimeError('imported')\n")
    assert is_reference("python:loud.py:X")
    assert absolute("python:loud.py:X") == f"python:{folder}/loud.py:X"
    with pytest.raises(ValueError, match="RuntimeError: imported"):
        python_object("python:loud.py:X", kind="losses")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("python:my_things", "is named 'python:FILE.py:NAME', 'python:MODULE:NAME' or 'plugin:NAME': got 'python:my_"),
        ("python::Thing", "got 'python::Thing'"),
        ("python:things/my_things.py:", "got 'python:things/my_things.py:'"),
        ("my_things.py:Thing", "got 'my_things.py:Thing'"),
        ("python:things/nothing.py:Thing", "must name a file that exists: got "),
        ("python:nothing:Thing", "must name a module on Python's path or in the current folder: got no 'nothing'"),
        ("python:things.nothing:Thing", "got no 'things.nothing'"),
        ("python:things/my_things.py:Thign", "has no 'Thign'; did you mean 'Thing'? Allowed: Derived, Thing."),
        ("python:broken.py:X", "broken.py, line 2: NameError: name 'undefined' is not defined; fix the code."),
        ("python:wrong.py:X", "wrong.py, line 1: SyntaxError: '(' was never closed; fix the code."),
        ("python:lacking.py:X", "lacking.py, line 1: ModuleNotFoundError: No module named 'not_installed'; fix"),
        ("python:lacking:X", "lacking.py, line 1: ModuleNotFoundError: No module named 'not_installed'; fix"),
        ("plugin:nobody", "'plugin:nobody' is no entry point of an installed package in the group 'trivet.losses'"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(folder: Path, reference: str, said: str) -> None:
    (folder / "broken.py").write_text("X = 1\nY = undefined\n")
    (folder / "wrong.py").write_text("X = (1\n")
    (folder / "lacking.py").write_text("import not_installed\n")
    with pytest.raises(ValueError, match=r"\S") as error:
        python_object(reference, kind="losses")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Thing", "must be a class derived from builtins.dict: got the class Thing; derive it."),
        ("NUMBER", "must be a class derived from builtins.dict: got a int; derive it."),
    ],
)
def test_a_wrong_type(name: str, said: str) -> None:
    assert python_object("python:things/my_things.py:Derived", kind="losses", base=dict).__name__ == "Derived"
    with pytest.raises(ValueError, match=said):
        python_object(f"python:things/my_things.py:{name}", kind="losses", base=dict)


def test_references_from_any_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert absolute("python:things/my_things.py:Thing") == f"python:{folder}/things/my_things.py:Thing"
    assert absolute("python:collections.abc:Mapping") == "python:collections.abc:Mapping"
    assert absolute("plugin:lifted") == "plugin:lifted"
    monkeypatch.chdir(folder / "things")
    assert absolute("python:my_things:Thing") == f"python:{folder}/things/my_things.py:Thing"


def test_an_entry_point_of_a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / "site" / "a_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trivet.losses]\nmine = a_module:Mine\nlost = a_module:Lost\n")
    (folder / "site" / "a_module.py").write_text("class Mine:\n    pass\n")
    monkeypatch.syspath_prepend(folder / "site")
    importlib.invalidate_caches()
    assert python_object("plugin:mine", kind="losses").__module__ == "a_module"
    with pytest.raises(ValueError, match=r"in the group 'trivet\.losses'; did you mean 'mine'\? Allowed: lost, mine\."):
        python_object("plugin:mien", kind="losses")
    with pytest.raises(ValueError, match=r"in the group 'trivet\.negatives'; there are none; install the package"):
        python_object("plugin:mine", kind="negatives")
    with pytest.raises(ValueError, match=r"'plugin:lost' \(a_module:Lost\) cannot be imported: .*AttributeError"):
        python_object("plugin:lost", kind="losses")


@pytest.mark.parametrize(
    ("here", "holder", "code", "runs"),
    [
        (".", None, "mine.py", True),
        (".", None, "parts/mine.py", True),
        ("parts", None, "mine.py", False),
        (".", None, "link.py", False),
        (".", None, ".venv/lib/site-packages/mine.py", False),
        (".", "runs/a", "mine.py", True),
        (".", "runs/a", "parts/mine.py", True),
        (".", "runs/a", "runs/a/mine.py", False),
        (".", "runs/a", "runs/mine.py", False),
        ("runs", "runs/a", "runs/mine.py", True),
        ("runs/a", "runs/a", "runs/a/mine.py", False),
        ("runs/a/model", "runs/a", "runs/a/model/mine.py", False),
        ("parts", "runs/a", "parts/mine.py", True),
    ],
)
def test_code_of_others_runs_only_if_it_is_trusted(
    here: str, holder: str | None, code: str, runs: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, work = folder / "work" / ".venv" / "lib" / "site-packages", folder / "work"
    for path in (work / "parts", work / "runs" / "a" / "model", installed):
        path.mkdir(parents=True)
    (folder / "outside.py").write_text("THING = 3\n")
    (work / "link.py").symlink_to(folder / "outside.py")
    monkeypatch.setattr(plugins, "INSTALLED", {installed})
    monkeypatch.chdir(work / here)
    path = work / code
    if not path.exists():
        path.write_text("THING = 3\n")
    for reference in (f"python:{path}:THING", f"python:{os.path.relpath(path)}:THING"):
        with contextlib.nullcontext() if holder is None else settings_of(work / holder):
            if runs:
                assert python_object(reference, kind="losses") == 3
                continue
            with pytest.raises(ValueError, match="names code that may be of others") as error:
                python_object(reference, kind="losses")
            assert str(path.resolve()) in str(error.value)
            assert path.stem not in {name.partition("_")[0] for name in sys.modules}
    if not runs:
        with trusted_code():
            assert python_object(f"python:{path}:THING", kind="losses") == 3
        with settings_of(folder):  # what runs already is not asked about again, as at the end of a training
            assert python_object(f"python:{path}:THING", kind="losses") == 3


def test_a_module_is_not_imported_to_see_whether_it_may_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "far" / "loud").mkdir(parents=True)
    (folder / "far" / "loud" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "far" / "loud" / "inner.py").write_text("X = 1\n")
    (folder / "far" / "bare").mkdir()  # a package without a file of its own
    (folder / "far" / "bare" / "inner.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(folder / "far")
    monkeypatch.chdir(folder / "things")
    for name in ("loud", "loud.inner", "bare.inner", "builtins", "sys"):
        with pytest.raises(ValueError, match="is not below the working folder"):
            python_object(f"python:{name}:X", kind="losses")
