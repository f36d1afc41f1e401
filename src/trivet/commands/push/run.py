"""`trivet push`: the files of a model and its card, read through before they leave this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import huggingface_hub as hub
from safetensors import safe_open

from trivet.commands.export.card import model_card
from trivet.commands.pull.run import CARD, INSIDE
from trivet.commands.push.record import PushedModel
from trivet.config.plugins import is_reference
from trivet.models import load_model
from trivet.models.hub import check_repository, publish
from trivet.models.store import DESCRIPTION, MODEL_FILES
from trivet.reports.run_record import RunRecord
from trivet.runtime.safe_read import read_json
from trivet.training.run_folder import CONFIG, RunFolder, model_folder, trained_model

SECRET = re.compile(
    r"\b(?:hf_\w{16,}|gh[a-z]_\w{16,}|github_pat_\w{16,}|sk-[\w-]{16,}|xox[a-z]-[\w-]{10,}|AKIA[0-9A-Z]{16})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\w+://[^\s:/@]+:[^\s/@]+@"
)
HOME = re.compile(r"(?<![\w.])(?:/(?:home|root|Users)/|[A-Z]:\\Users\\)\w")
LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
USE = """```sh
trivet pull {repository} -o FOLDER
```

```python
from trivet.models import load_model

model = load_model("FOLDER")  # its method embed takes images, texts or vectors, as in training
```"""
HEAD = """---
library_name: trivet
{licence}tags:
- metric-learning
- embeddings
---

"""


def push_model(source: Path, repository: str, *, public: bool = False, licence: str | None = None) -> PushedModel:
    """Send a model to a repository of the hub, in one commit.

    What is sent are the files that `load_model` reads, and a card. Settings and items of a run, which name folders of
    the machine, stay.

    Args:
        source: a run folder, whose card says what it was trained on and how good it is; or a model folder.
        public: whether all may read a repository that is made.
        licence: as the hub names it.

    Raises:
        ValueError: if there is no model, its network is code of the user's own, a file names a folder of this machine
            or holds what looks like a secret, or the hub does not accept it.
        HubError: if the hub cannot be reached.
    """
    check_repository(repository)
    if licence is not None and not LICENCE.fullmatch(licence):
        raise ValueError(f"--licence must be as the hub names it, such as apache-2.0 or mit: got {licence!r}.")
    record: RunRecord | None = None
    if (source / CONFIG).is_file():
        run = RunFolder.open(source)
        trained_model(run)
        record, folder, title = run.record(), model_folder(run), run.name
    else:
        load_model(source)
        folder, title = source, source.resolve().name
    files: dict[str, Path | bytes] = {
        name: folder / name for name in (*MODEL_FILES, *INSIDE) if (folder / name).is_file()
    }
    card = folder / CARD
    use = USE.format(repository=repository)
    text = (
        card.read_text(encoding="utf-8")
        if card.is_file()
        else model_card(record, title=title, use=use, licence=licence)
    )
    if not text.startswith("---\n"):
        text = HEAD.format(licence=f"license: {licence}\n" if licence else "") + text
    files[CARD] = text.encode()
    for name, content in files.items():
        check_content(name, content)
    names = (*MODEL_FILES, *INSIDE, CARD)
    revision = publish(repository, files, public=public, names=names, mark=DESCRIPTION, message=f"Model {title}")
    return PushedModel(
        source=str(source),
        repository=repository,
        revision=revision,
        url=f"{hub.constants.ENDPOINT}/{repository}",
        private=not public,
        files={
            name: len(content) if isinstance(content, bytes) else content.stat().st_size
            for name, content in files.items()
        },
    )


def check_content(name: str, content: Path | bytes) -> None:
    """ValueError if a file names a folder of this machine or code of its user, or holds what looks like a secret.

    Args:
        name: in the repository; it says what the content is.
    """
    texts: list[str]
    if isinstance(content, bytes):
        texts = content.decode().splitlines()
    elif name.endswith(".safetensors"):
        with safe_open(content, framework="pt") as file:
            texts = [*(file.metadata() or {}).values()]
    elif name.endswith("tokenizer.json"):
        texts = []  # a vocabulary
    else:
        texts = [*_texts(read_json(content, "a file of a model"))]
    for text in texts:
        if SECRET.search(text):
            raise ValueError(
                f"what is sent must hold no secret: {name} holds a text that looks like a token, a key or a password; "
                "remove it, and take that secret back if others may have read it."
            )
        if name != CARD and is_reference(text):
            raise ValueError(
                f"a network must be one that others have: {name} names {text!r}, code of yours; share what trivet "
                "export --to torch-export writes."
            )
        paths = PurePosixPath(text.partition(":")[2] or text), PureWindowsPath(text)
        is_path = name != CARD and (text.startswith("~/") or any(path.is_absolute() for path in paths))
        if HOME.search(text) or is_path:
            raise ValueError(
                f"what is sent must name no folder of this machine: {name} holds {text[:200]!r}; replace it there."
            )


def _texts(value: Any) -> Iterator[str]:
    """The texts of parsed JSON, names among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from (name, *_texts(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
