"""The files of a data set, in a folder or in a zip file, which is read without unpacking it."""

from __future__ import annotations

import os
import posixpath
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from trivet.runtime.safe_read import check_regular

LARGEST = 1 << 28  # bytes of one file of an archive, unpacked
PACKED = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tbz", ".txz", ".rar", ".7z")


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file in a zip file."""

    archive: Path
    name: str

    def __str__(self) -> str:
        return f"{self.archive}/{self.name}"

    def read(self) -> bytes:
        """The bytes of the file; safe to call from threads, and in processes that were forked.

        Raises:
            Exception: whatever is wrong with the archive.
        """
        archive = _opened(self.archive)
        info = archive.getinfo(self.name)
        if info.file_size > LARGEST:
            raise ValueError(f"it unpacks to {info.file_size:,} bytes, and at most {LARGEST:,} are read")
        return archive.read(info)


def _opened(path: Path) -> zipfile.ZipFile:
    stat = path.stat()
    return _zip(path, os.getpid(), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _zip(path: Path, process: int, modified: int, size: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)  # of this process: a fork would share the position in the file


@dataclass(frozen=True, slots=True)
class Tree:
    """Files with names of the form "images/a.jpg", in a folder or in a folder of a zip file.

    Attributes:
        root: the folder, or the zip file.
        prefix: what the names of the files in a zip file begin with.
        members: the names of all files in the zip file; None of a folder.
    """

    root: Path
    prefix: str = ""
    members: frozenset[str] | None = None

    def has(self, name: str) -> bool:
        """True if there is a file of that name."""
        if self.members is None:
            return (self.root / name).is_file()
        return self.prefix + name in self.members

    def read(self, name: str) -> bytes:
        """The bytes of a file; ValueError if it is missing or broken."""
        source = self.source(name)
        try:
            if isinstance(source, ZipMember):
                return source.read()
            check_regular(source, "a list of a data set")
            return source.read_bytes()
        except Exception as error:  # a damaged archive makes zipfile and zlib raise many kinds
            reason = "it is not there" if isinstance(error, (KeyError, FileNotFoundError)) else str(error)
            raise ValueError(f"{source} must be a file that can be read: {reason}; get it again.") from None

    def text(self, name: str) -> str:
        """The text of a file in UTF-8; ValueError if it is not."""
        try:
            return self.read(name).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{self.source(name)} must be a text in UTF-8: it is not; get it again.") from None

    def rows(self, name: str, columns: int, *, skip: int = 0) -> list[list[str]]:
        """The lines of a text as words, `columns` of them; the last one may hold spaces. Empty lines are left out.

        Args:
            skip: lines of a header.

        Raises:
            ValueError: if a line has fewer, or there is none.
        """
        rows = []
        for number, line in enumerate(self.text(name).splitlines()[skip:], start=1 + skip):
            words = line.split(maxsplit=columns - 1)
            if words and len(words) < columns:
                raise ValueError(
                    f"each line of {self.source(name)} must hold {columns} values: line {number} has {len(words)}, "
                    f"{line[:60]!r}; get the file again."
                )
            if words:
                rows.append([*words[:-1], words[-1].rstrip()])
        if not rows:
            raise ValueError(f"{self.source(name)} must hold lines of {columns} values: it has none; get it again.")
        return rows

    def source(self, name: str) -> Path | ZipMember:
        """A file, which need not be there; ValueError if the name leaves the folder."""
        check_inside(name, self.root)
        return self.root / name if self.members is None else ZipMember(self.root, self.prefix + name)

    def names(self, under: str, suffixes: tuple[str, ...], *, deep: bool = False) -> list[str]:
        """Sorted names of the files in a folder, or below it, with one of the suffixes; hidden ones are left out."""
        if self.members is None:
            folder = self.root / under
            files = [path.relative_to(folder).as_posix() for path in folder.glob("**/*" if deep else "*")]
        else:
            start = f"{self.prefix}{under}/"
            files = [name.removeprefix(start) for name in self.members if name.startswith(start)]
        known = [name for name in files if name.lower().endswith(suffixes) and (deep or "/" not in name)]
        return sorted(name for name in known if not name.rpartition("/")[2].startswith("."))


def check_inside(name: str, root: Path) -> None:
    """ValueError if a path of a list does not lie below its root."""
    plain = posixpath.normpath(name.replace("\\", "/"))
    if not name or name.startswith(("/", "\\")) or Path(name).is_absolute() or plain == ".." or plain.startswith("../"):
        raise ValueError(f"a path must lie below {root}: got {name!r}; correct it, or choose another root.")


def find_tree(bases: Sequence[Path], matches: Callable[[Tree], object]) -> Tree | None:
    """The first folder or zip file that holds what is wanted: a base, or what lies directly in it.

    In a zip file the wanted files may lie in a folder of up to two levels.

    Raises:
        ValueError: if there is none, but an archive that must be unpacked; or if a zip file is broken.
    """
    packed = []
    for base in bases:
        inside = sorted(base.iterdir()) if base.is_dir() else []
        folders = [path for path in (base, *inside) if path.is_dir()]
        zips = [path for path in (base, *inside) if path.is_file() and path.suffix.lower() == ".zip"]
        for tree in (*(Tree(folder) for folder in folders), *(tree for path in zips for tree in _trees(path))):
            if matches(tree):
                return tree
        packed += [path for path in (base, *inside) if path.is_file() and path.name.lower().endswith(PACKED)]
    if packed:
        raise ValueError(
            f"only zip files are read without unpacking: unpack {packed[0]}, for instance with `tar -xf`, and keep "
            "what is in it in the same place."
        )
    return None


def _trees(path: Path) -> list[Tree]:
    try:
        members = frozenset(name for name in _opened(path).namelist() if not name.endswith("/"))
    except Exception as error:  # a damaged archive makes zipfile and zlib raise many kinds
        raise ValueError(f"{path} must be a complete zip file: {error}; get it again.") from None
    prefixes = {"/".join(name.split("/")[:depth]) + "/" for name in members for depth in (1, 2) if "/" in name}
    return [
        Tree(path, prefix, members)
        for prefix in ("", *sorted(prefixes, key=lambda folder: (folder.count("/"), folder)))
    ]
