"""`trivet pull`: the files of a model, and no others, from a repository of the hub into a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from trivet.commands.pull.record import PulledModel
from trivet.io.atomic_files import atomic_folder
from trivet.models import load_model
from trivet.models.hub import INITIAL_FILES, revision_of, snapshot
from trivet.models.store import DESCRIPTION, MODEL_FILES
from trivet.models.towers import SIDES

CARD = "README.md"
INSIDE = tuple(f"{side}/{name}" for side in SIDES for name in MODEL_FILES)
NAMES = frozenset((*MODEL_FILES, *SIDES, CARD))


def pull_model(repository: str, output: Path, *, revision: str | None = None, force: bool = False) -> PulledModel:
    """Download a model into a folder of its own, which is there once each hash is right and the model has been loaded.

    Raises:
        ValueError: if the repository has no model, or one that cannot be loaded, or the folder may not be replaced.
        HubError: if the hub cannot be reached.
    """
    with atomic_folder(output, NAMES, mark=DESCRIPTION, what="a model", force=force) as folder:
        newest = revision_of(repository, revision)
        wanted = {name: digest for name, digest in newest.files.items() if name in (*MODEL_FILES, *INSIDE, CARD)}
        if DESCRIPTION not in wanted:
            raise ValueError(
                f"a repository must hold a model that trivet push wrote: {repository} has no {DESCRIPTION}; name "
                "another."
            )
        cached = snapshot(repository, newest.commit, wanted)
        for name in wanted:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(cached / name, folder / name)
        load_model(folder)
    return PulledModel(
        repository=repository,
        revision=newest.commit,
        output=str(output),
        files={name: (output / name).stat().st_size for name in sorted(wanted)},
        left_out=sorted(newest.files.keys() - wanted.keys() - INITIAL_FILES),
    )
