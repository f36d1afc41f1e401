"""Repositories of the Hugging Face hub: files go there in one commit, and come from there by their hashes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from trivet.models.text_folder import briefly

REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
INITIAL_FILES = {".gitattributes", "README.md"}  # of a repository without content
LOG_IN = "log in with hf auth login, or set HF_TOKEN to a token"


class HubError(ValueError):
    """A failure of the Hugging Face hub, or of the way to it; another time it may not fail."""


class Revision(NamedTuple):
    """A commit of a repository.

    Attributes:
        files: name -> hash: SHA-256 of a large file, that of git, SHA-1, of a small one; None if the hub states none.
    """

    commit: str
    private: bool
    files: dict[str, str | None]


@contextmanager
def hub_errors(repository: str) -> Iterator[None]:
    """Raise HubError or ValueError, each a sentence, in place of what the hub's client raises."""
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except RepositoryNotFoundError:
        raise ValueError(
            f"a repository of models must be on the Hugging Face hub, and open to you: {repository} is not found; "
            f"check its name, or, if it is private, {LOG_IN}."
        ) from None
    except RevisionNotFoundError:
        raise ValueError(f"a revision must be in the repository: {repository} lacks it; check its name.") from None
    except Exception as error:  # the hub's client raises many kinds
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            raise ValueError(
                f"the Hugging Face hub must accept the token for {repository}: it does not; {LOG_IN} that may do this."
            ) from None
        raise HubError(
            f"{repository} on the Hugging Face hub cannot be reached ({briefly(error)}); try again: what has arrived "
            "is not sent twice."
        ) from None


def revision_of(repository: str, name: str | None = None) -> Revision:
    """The newest commit of a repository, or that of a branch, tag or hash."""
    import huggingface_hub as hub

    check_repository(repository)
    with hub_errors(repository):
        details: Any = hub.HfApi().model_info(repository, revision=name, files_metadata=True)
    return Revision(details.sha, bool(details.private), hashes(details))


def hashes(details: Any) -> dict[str, str | None]:
    """The files of what the hub's client says of a repository, with their hashes, see `Revision`."""
    return {
        file.rfilename: file.lfs.sha256 if file.lfs else getattr(file, "blob_id", None)
        for file in details.siblings or []
    }


def snapshot(repository: str, commit: str, files: Mapping[str, str | None]) -> Path:
    """The folder of files of a commit in the hub's cache, after a download where they are not there.

    Raises:
        HubError: if the download fails.
        ValueError: if a file is not what the hub says; then it is removed.
    """
    import huggingface_hub as hub

    with hub_errors(repository):
        folder = Path(hub.snapshot_download(repository, revision=commit, allow_patterns=list(files)))
    digests = {name: _digest(folder / name, stated) for name, stated in files.items() if stated is not None}
    wrong = [name for name, digest in digests.items() if digest != files[name]]
    for name in wrong:
        (folder / name).resolve().unlink()
        (folder / name).unlink(missing_ok=True)
    if wrong:
        raise ValueError(
            f"{wrong[0]} of {repository} must have the hash that the hub states, {files[wrong[0]]}: the download has "
            f"{digests[wrong[0]]} and was removed; try again."
        )
    return folder


def _digest(path: Path, stated: str) -> str:
    """The hash of a file, of the kind of the stated one."""
    if len(stated) == 64:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def publish(
    repository: str,
    files: Mapping[str, Path | bytes],
    *,
    public: bool,
    names: Collection[str],
    mark: str,
    message: str,
) -> str:
    """Commit files to a repository, which is made if it is not there; returns the hash of the commit.

    Args:
        public: whether all may read it; one that is there must be as this says.
        names: of all files that such a commit may hold; those of an earlier one that are not in `files` are removed.
        mark: the name of the file that a repository with content must have: others are not added to.

    Raises:
        HubError: if the hub cannot be reached.
        ValueError: if there is no token, the hub does not accept it, or the repository may not be added to.
    """
    import huggingface_hub as hub

    check_repository(repository)
    if hub.get_token() is None:
        raise ValueError(f"a push needs a token of the Hugging Face hub: got none; {LOG_IN} that may write.")
    api = hub.HfApi()
    with hub_errors(repository):
        exists = api.repo_exists(repository)
        if not exists:
            api.create_repo(repository, private=not public)
    stale = list[str]()
    if exists:
        current = revision_of(repository)
        if current.private == public:
            state, remedy = ("private", "leave out --public") if public else ("public", "add --public")
            raise ValueError(
                f"a push leaves a repository as private as it is: {repository} is {state}; {remedy}, or change that on "
                "its page."
            )
        if mark not in current.files and not current.files.keys() <= INITIAL_FILES:
            raise ValueError(
                f"a repository must be new, or hold a model of Trivet: {repository} holds other files, and no {mark}; "
                "choose another name."
            )
        stale = [name for name in current.files if name in names and name not in files]
    additions = [hub.CommitOperationAdd(name, content) for name, content in files.items()]
    removals = [hub.CommitOperationDelete(name) for name in stale]
    with hub_errors(repository):
        return str(api.create_commit(repository, [*additions, *removals], commit_message=message).oid)


def check_repository(repository: str) -> None:
    """ValueError if a name is not that of a repository of the hub."""
    if not REPOSITORY.fullmatch(repository):
        raise ValueError(
            f"a repository of the Hugging Face hub must be OWNER/NAME, of letters, digits, '-', '_' and '.': got "
            f"{repository!r}; write both."
        )
