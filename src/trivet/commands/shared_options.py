"""Options that several commands have, and checks of what was written."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from trivet.io.atomic_files import recover
from trivet.io.overwrite_guard import RUN_NAMES, Output, OutputFolder, Recognised, check_outputs, is_run_folder
from trivet.io.vector_choice import Codes, VectorChoice
from trivet.runtime.safe_read import check_regular

if TYPE_CHECKING:
    from trivet.io.pair_table import PairSides
    from trivet.io.tag_cells import TagCells

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets. Default: TRIVET_DATA, else ~/.cache/trivet/data."),
]
Distance = Annotated[
    Literal["cosine", "euclidean"] | None, typer.Option(help="Distance. Default: the run's; cosine for a file.")
]
DistanceByDimension = Annotated[
    Literal["cosine", "euclidean"] | None,
    typer.Option(help="Distance. Default: the run's; cosine for a file, euclidean if it has one dimension."),
]
IndexRecall = Annotated[
    float | None, typer.Option(help="Share of the nearest 10 that an approximate index must find. Default: 0.95.")
]
SkipEmpty = Annotated[
    bool,
    typer.Option("--skip-empty", help="Leave out rows of a table without a label or another value they must have."),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help='The mark between the tags of a cell of a label column, such as ";"; "list" for cells that are lists, '
        '"none" to take each cell as one class.',
        show_default=False,
    ),
]
Report = Annotated[Path | None, typer.Option(help="Write a page with tables and plots to this file.")]
Change = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: section.key=value. May be repeated.")
]


def _trust(context: typer.Context, value: bool) -> bool:
    from trivet.config.plugins import trusted_code  # here: other commands need no settings

    if value:
        context.with_resource(trusted_code())
    return value


TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        callback=_trust,
        help="Run code that settings name also where it may be of others: outside of the working folder, of an "
        "installed package, or beside the run.",
    ),
]
Paths = TypeVar("Paths", Path | None, list[Path] | None)
Request = TypeVar("Request")


def exists(paths: Paths) -> Paths:
    """The path or paths of an argument; ValueError if one does not exist, or is a device or a pipe."""
    for path in [paths] if isinstance(paths, Path) else paths or []:
        recover(path, RUN_NAMES)  # what a killed command has moved away comes back
        if not path.exists():
            raise ValueError(f"an input must exist: {path} does not exist; check the path.")
        if not path.is_dir():
            check_regular(path, "an input")
    return paths


AcceptedLicence = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-licence", metavar="NAME", help="Accept that the licence of an encoder forbids commercial use."
    ),
]
VECTOR_FILES = "a table with a column of vectors, .npz, .npy with a .csv beside it, a folder of shards"
Table = Annotated[
    Path | None,
    typer.Option(help="The csv file of the rows of an .npy file. Default: of the same name.", callback=exists),
]
EmbeddingColumn = Annotated[
    str | None,
    typer.Option(
        "--embedding",
        help="The column of the vectors, of numbered ones the first. Default: the only one.",
        show_default=False,
    ),
]
VectorCodes = Annotated[
    Codes | None,
    typer.Option(
        "--codes",
        help="What vectors of whole numbers hold: bits (8 in each, numpy.packbits), int8, or uint8.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class VectorOptions:
    """Options of every command that reads files of vectors: what such a file may leave open."""

    table: Table = None
    embedding: EmbeddingColumn = None
    codes: VectorCodes = None

    @property
    def choice(self) -> VectorChoice:
        """The choice for the files that are read."""
        return VectorChoice(self.table, self.embedding, self.codes)


@dataclass(frozen=True, kw_only=True)
class TagOptions:
    """Options of commands that read labels, of which a cell may hold several."""

    separator: Separator = None
    match: Annotated[
        str | None,
        typer.Option(help="Which items belong together: any shared tag, all alike, or a Jaccard index. Default: any."),
    ] = None

    @property
    def tags(self) -> TagCells | None:
        """The answer to what cells of several labels are; None without one."""
        return tag_cells(self.separator, self.match)


@dataclass(frozen=True, kw_only=True)
class PairColumnOptions:
    """Options of commands that read a table of pairs: its columns, and which pairs belong together."""

    pairs: Annotated[
        bool, typer.Option("--pairs", help="Each row is a pair that belongs together, such as a query and its answer.")
    ] = False
    left: Annotated[str | None, typer.Option(help="The column of the left side of pairs. Default: by its name.")] = None
    right: Annotated[str | None, typer.Option(help="The column of the right side of pairs. Default: by its name.")] = (
        None
    )
    relevant: Annotated[
        float | None,
        typer.Option(help="The least score of a pair that belongs together. Default: 1, of whole numbers."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PairOptions(PairColumnOptions):
    """Options of commands that read pairs of texts, images or vectors."""

    left_vectors: Annotated[
        Path | None,
        typer.Option(
            callback=exists, help="Vectors of the left side of pairs, as of trivet embed; its column holds their ids."
        ),
    ] = None
    right_vectors: Annotated[
        Path | None, typer.Option(callback=exists, help="Vectors of the right side of pairs, likewise.")
    ] = None

    @property
    def sides(self) -> PairSides | None:
        """The sides of pairs; None without any of their options, of which each says that there are pairs."""
        options = (self.left, self.right, self.left_vectors, self.right_vectors, self.relevant)
        if not self.pairs and all(option is None for option in options):
            return None
        from trivet.io.pair_table import PairSides  # here: `--help` needs no tables

        return PairSides(*options)


@dataclass(frozen=True, kw_only=True)
class DataOptions(PairOptions, TagOptions, VectorOptions):
    """Options of commands that propose settings for data: what the data are, and what a ladder compares on them."""

    text: Annotated[str | None, typer.Option(help="The column of texts. Default: guessed.")] = None
    weights: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Weights of a pretrained encoder to compare, by its name in trivet encoders, timm:NAME or text:NAME, "
            "and their file or folder. May be repeated. Beside those of trivet encoders that are on this machine.",
        ),
    ] = None
    start: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="A checkpoint of yours, of timm, sentence-transformers or transformers, as a further encoder to "
            "compare. May be repeated.",
            callback=exists,
        ),
    ] = None
    minutes: Annotated[
        float | None,
        typer.Option(help="Minutes within which a training must end to be tried. Default: 4, with a GPU 30."),
    ] = None

    @property
    def ladder(self) -> dict[str, Any]:
        """The options of encoders and minutes as settings of `LadderConfig`."""
        files = {}
        for option in self.weights or []:
            name, equals, file = option.rpartition("=")
            if not equals:
                raise ValueError(
                    f"--weights must be NAME=FILE, such as efficientnet-lite0=lite0.safetensors: got {option!r}."
                )
            files[name] = file
        values = {"weights": files, "start": [*map(str, self.start or [])], "minutes": self.minutes}
        return {key: value for key, value in values.items() if value not in ({}, [], None)}


@dataclass(frozen=True, kw_only=True)
class ItemOptions(VectorOptions, TagOptions, PairColumnOptions):
    """Options of commands that read embeddings, or make those of the items of a file by encoders."""

    texts: Annotated[
        Path | None,
        typer.Option(
            help="Embed the texts of this file, such as a .csv with their labels, by encoders: folders of "
            "sentence-transformers, transformers or Trivet. With --pairs a table of pairs; or a folder of BEIR.",
            callback=exists,
        ),
    ] = None
    text: Annotated[str | None, typer.Option(help="With --texts: the column that holds the texts. Default: text.")] = (
        None
    )
    images: Annotated[
        Path | None,
        typer.Option(
            help="Embed the images of this folder, one folder for each class, by encoders: folders of timm or Trivet, "
            "or files of weights.",
            callback=exists,
        ),
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            help="With --images: the network of files of weights, timm:NAME or torchvision:NAME. Default: that of timm "
            "which a file is called like."
        ),
    ] = None
    left_vectors: Annotated[
        list[Path] | None,
        typer.Option(
            callback=exists,
            help="Vectors of the left side of pairs, as of trivet embed; its column holds their ids. May be repeated.",
        ),
    ] = None
    right_vectors: Annotated[
        list[Path] | None,
        typer.Option(callback=exists, help="Vectors of the right side of pairs, likewise, one for each left one."),
    ] = None
    skip_empty: SkipEmpty = False

    def is_run(self, path: Path) -> bool:
        """Return whether a path is a run, which it is not where it embeds items."""
        return self.texts is None and self.images is None and is_run_folder(path)

    def check(self, paths: Sequence[Path]) -> None:
        """ValueError if options do not go together.

        Args:
            paths: the arguments.
        """
        if self.texts is not None and self.images is not None:
            raise ValueError("--texts and --images are two kinds of items: got both; leave one out.")
        if self.text is not None and self.texts is None:
            raise ValueError("--text names a column of a file of texts: give the file with --texts.")
        if self.network is not None and self.images is None:
            raise ValueError("--network is of files of weights that embed images: give these with --images.")
        left, right = (len(files or ()) for files in (self.left_vectors, self.right_vectors))
        if left != right:
            raise ValueError(
                f"--left-vectors and --right-vectors go together: got {left} and {right}; give one of each."
            )
        if left and (len(paths) != 1 or self.texts is not None or self.images is not None):
            raise ValueError(
                "--left-vectors and --right-vectors are of the pairs of a table: name the table as the only argument, "
                "without --texts or --images."
            )
        of_pairs = self.pairs or any(value is not None for value in (self.left, self.right, self.relevant))
        if of_pairs and not left and self.texts is None:
            raise ValueError(
                "--pairs says that the rows of a table are pairs: give the table with --texts FILE to embed it, or as "
                "the argument beside --left-vectors and --right-vectors."
            )
        if self.text is not None and of_pairs:
            raise ValueError("--text is for single texts: name the sides of pairs with --left and --right.")


def tag_cells(separator: str | None, match: str | None) -> TagCells | None:
    """Read the options `--separator` and `--match`.

    Raises:
        ValueError: if one of them is no such choice, or there is only the second.
    """
    if separator is None and match is None:
        return None
    from trivet.io.tag_cells import TagCells, tag_match  # here: `--help` needs no tables

    if not separator:
        raise ValueError("--match is for tags, and --separator the mark between them, such as ';': give both.")
    return TagCells(separator, tag_match(match or "any"))


def command(
    request: type[Request],
) -> Callable[[Callable[[typer.Context, Request], int]], Callable[..., int]]:
    """Make a function a command whose arguments and options are the fields of a dataclass, which it receives."""
    hints = get_type_hints(request, include_extras=True)
    fields = [field.replace(annotation=hints[field.name]) for field in signature(request).parameters.values()]
    context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)

    def made(run: Callable[[typer.Context, Request], int]) -> Callable[..., int]:
        def call(context: typer.Context, **options: Any) -> int:
            return run(context, request(**options))

        call.__doc__, call.__annotations__ = run.__doc__, {"context": typer.Context} | hints
        call.__signature__ = Signature([context, *fields])  # type: ignore[attr-defined]  # which typer reads
        return call

    return made


def written_options(context: typer.Context, *names: str) -> list[str]:
    """Those of the named options that were written on the command line, as they are written there."""
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in names and getattr(context.get_parameter_source(option.name), "name", "") == "COMMANDLINE"
    ]


def refuse(context: typer.Context, reason: str, *names: str) -> None:
    """ValueError if one of the named options was written, which would do nothing for this reason."""
    if written := written_options(context, *names):
        raise ValueError(f"{reason}: leave out {', '.join(written)}.")


def check_written(context: typer.Context, *reads: str | None, recognised: Mapping[str, Recognised]) -> None:
    """Check the options that name a file to write, as `trivet.io.overwrite_guard.check_outputs` does.

    Args:
        reads: what the command reads beside its arguments and options that are paths.
        recognised: option -> how a file that this option wrote is recognised.
    """
    outputs = [
        Output(option.opts[0], context.params[option.name], recognised[option.name], context.params.get("force"))
        for option in context.command.params
        if option.name in recognised and context.params[option.name] is not None
    ]
    check_outputs(outputs, [*_paths(context, recognised), *(Path(name) for name in reads if name)])


def check_folder(
    context: typer.Context,
    path: Path,
    names: Sequence[str] = (),
    *,
    readable: Sequence[str] = (),
    reads: Sequence[str] = (),
) -> None:
    """Check the option `--output` that names a folder to make, as `trivet.io.overwrite_guard.check_outputs` does.

    Args:
        reads: as in `check_written`.
    """
    check_outputs([OutputFolder("--output", path, names, readable)], [*_paths(context, {"output"}), *map(Path, reads)])


def _paths(context: typer.Context, outputs: Container[str]) -> list[Path]:
    """The paths that a command reads; data sets by name lie where no command writes."""
    values = [value for name, value in context.params.items() if name not in outputs and name != "data_root"]
    return [
        path for value in values for path in (value if isinstance(value, list) else [value]) if isinstance(path, Path)
    ]
