"""The Containerfile copies what is there, installs an extra that is there, and runs `trivet` without rights."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
LINES = [line.partition(" ")[::2] for line in TEXT.splitlines() if line and not line.startswith("#")]
KNOWN = {"FROM", "WORKDIR", "COPY", "ARG", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}


def values(instruction: str) -> list[str]:
    return [value for name, value in LINES if name == instruction]


def test_each_line_is_an_instruction_and_the_last_stage_runs_trivet_as_a_user_without_rights() -> None:
    assert {name for name, _ in LINES} == KNOWN
    build, last = values("FROM")
    assert build == f"{last} AS build"
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert tuple(map(int, re.findall(r"\d+", last))) >= tuple(map(int, re.findall(r"\d+", requires)))
    (user,) = values("USER")
    assert user == "trivet"
    assert any(f"useradd --uid 1000 --create-home {user}" in command for command in values("RUN"))
    names = [name for name, _ in LINES]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert json.loads(values("ENTRYPOINT")[0]) == ["trivet"]
    assert json.loads(values("CMD")[0]) == ["--help"]


def test_what_it_copies_is_all_that_the_package_is_built_of() -> None:
    copied = [name for value in values("COPY") if "--from" not in value for name in value.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"pyproject.toml", "setup.py", "README.md", "constraints.txt", "src"}
    assert needed | {name for name in project["license-files"] if "/" not in name} == {*copied}
    (extras,) = [value.partition("=")[2] for value in values("ARG") if value.startswith("EXTRAS")]
    assert {*extras.split(",")} <= project["optional-dependencies"].keys()
    (install,) = [command for command in values("RUN") if "pip install" in command]
    assert install.endswith('--constraint constraints.txt ".[$EXTRAS]"')


@pytest.mark.parametrize("engine", ["podman", "docker", None])
def test_make_image_takes_the_engine_that_is_there_or_says_that_none_is(engine: str | None, tmp_path: Path) -> None:
    for name in ("make", "sh"):
        found = next(Path(folder, name) for folder in os.environ["PATH"].split(":") if Path(folder, name).exists())
        (tmp_path / name).symlink_to(found)
    if engine is not None:
        (tmp_path / engine).write_text(f'#!/bin/sh\necho {engine} "$@"\n')
        (tmp_path / engine).chmod(0o755)
    arguments = ["make", "--no-print-directory", "image", "SHELL=sh", "BUILD=--build-arg EXTRAS=train,text"]
    run = subprocess.run(arguments, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    if engine is None:
        assert run.returncode == 2
        assert "An image needs podman or docker: neither is installed; install one, or run make install." in run.stdout
    else:
        built = f"{engine} build --file Containerfile --tag trivet --build-arg EXTRAS=train,text ."
        assert (run.returncode, built in run.stdout) == (0, True), run.stderr
