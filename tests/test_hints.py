"""What an error says to do works when it is done, and what it names is there."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.sources import library
from tests.test_documented_commands import COMMANDS, known_settings

import trivet
from trivet import metrics
from trivet.io.read_embeddings import read_vectors
from trivet.knn.hard_negatives import hard_negatives
from trivet.knn.index import build_index
from trivet.label_noise import by_transition, symmetric
from trivet.samplers import CrossBatchMemory
from trivet.training.run_folder import RunFolder, model_folder

SOURCE = Path(str(trivet.__file__)).parent
TESTS = Path(__file__).parent
CODE = re.compile(r"(?:[\w.]+)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?:\[1\])?")

POINTS = torch.eye(6)
NUMBERS = torch.tensor([0, 0, 1, 1, 2, 2])
NAMES = ["ash", "ash", "bay", "bay", "elm", "elm"]
ROWS = POINTS.numpy()
INDEX = build_index(ROWS)


def loss(**changed: Any) -> object:
    return trivet.TripletLoss(positives="easy")(**{"embeddings": POINTS, "labels": NUMBERS, **changed})


def with_references(**changed: Any) -> object:
    given = {"embeddings": POINTS, "labels": NUMBERS, "references": POINTS, "reference_labels": NUMBERS}
    return trivet.TripletLoss(positives="easy")(**{**given, **changed})


def evaluated(**changed: Any) -> object:
    return metrics.retrieve(**{"embeddings": ROWS, "labels": NUMBERS, **changed}, measures=["recall@1"])


def from_gallery(**changed: Any) -> object:
    given = {"embeddings": ROWS, "labels": NUMBERS, "gallery": ROWS, "gallery_labels": NUMBERS}
    return metrics.retrieve(**{**given, **changed}, measures=["recall@1"])


def mined(**changed: Any) -> object:
    return hard_negatives(INDEX, changed["labels"])


def scattered(**changed: Any) -> object:
    return metrics.nearest_pairs(**{"embeddings": ROWS, "labels": NUMBERS, **changed})


def objects(rows: np.ndarray) -> np.ndarray:
    """Rows as pandas keeps a column of arrays."""
    made = np.empty(len(rows), object)
    made[:] = list(rows)
    return made


FOLLOWED: list[tuple[Callable[..., object], dict[str, Any]]] = [
    (loss, {"labels": NUMBERS[:, None]}),
    (loss, {"labels": torch.nn.functional.one_hot(NUMBERS)}),
    (loss, {"labels": torch.tensor([0, 1, 2])}),
    (loss, {"labels": torch.tensor([0, 1])}),
    (loss, {"labels": NAMES}),
    (loss, {"labels": np.array(NAMES)}),
    (loss, {"labels": np.array([*NAMES[:5], 7], object)}),
    (loss, {"labels": NUMBERS.tolist()}),
    (loss, {"labels": NUMBERS.numpy()}),
    (loss, {"labels": list(NUMBERS)}),
    (loss, {"labels": NUMBERS.float()}),
    (loss, {"labels": NUMBERS > 0}),
    (loss, {"labels": NUMBERS.to_sparse()}),
    (with_references, {"reference_labels": NAMES, "labels": NAMES}),
    (loss, {"embeddings": ROWS}),
    (loss, {"embeddings": ROWS.tolist()}),
    (loss, {"embeddings": list(POINTS)}),
    (loss, {"embeddings": POINTS.int()}),
    (loss, {"embeddings": POINTS.to_sparse()}),
    (loss, {"embeddings": lambda: torch.quantize_per_tensor(POINTS, 0.1, 0, torch.qint8)}),
    (loss, {"embeddings": lambda: torch.nested.nested_tensor(list(POINTS))}),
    (evaluated, {"labels": NAMES}),
    (evaluated, {"labels": np.array(NAMES)}),
    (evaluated, {"labels": np.array([*NAMES[:5], None], object)}),
    (evaluated, {"labels": NUMBERS.double()}),
    (evaluated, {"labels": NUMBERS.numpy() > 0}),
    (evaluated, {"embeddings": ROWS.astype(int)}),
    (evaluated, {"embeddings": POINTS.int()}),
    (evaluated, {"embeddings": ROWS.tolist()}),
    (from_gallery, {"labels": NAMES, "gallery_labels": NAMES[::-1]}),
    (scattered, {"sample": [4, 1, 1]}),
    (mined, {"labels": NAMES}),
    (mined, {"labels": NUMBERS.double()}),
    (lambda labels: symmetric(labels, 0.2, generator=0), {"labels": NAMES}),
    (lambda labels: symmetric(labels, 0.2, generator=0), {"labels": -NUMBERS.numpy()}),
    (lambda labels: by_transition(labels, np.eye(3), generator=0), {"labels": NUMBERS.numpy() * 5}),
    (lambda embeddings: trivet.diagnose(embeddings, NUMBERS), {"embeddings": objects(ROWS)}),
    (lambda embeddings: trivet.diagnose(embeddings, NUMBERS), {"embeddings": ROWS.astype(int)}),
]  # fmt: skip


def follow(call: Callable[..., object], values: dict[str, Any]) -> set[str]:
    """Do what each error says until there is none; the names of the functions that were called for it."""
    values = {name: value() if callable(value) else value for name, value in values.items()}  # some warn when made
    names, message = set(), ""
    for _ in range(4):
        try:
            call(**values)
            break
        except ValueError as error:
            message = str(error)
        code = CODE.findall(message.partition(": got ")[2])[-1]
        names |= called(code)
        made = eval(code, {"np": np, "torch": torch}, dict(values))
        if "both together" in message:
            names_of_both = re.findall(r"\w+labels|labels", code)
            values |= dict(zip(names_of_both, torch.from_numpy(made).chunk(2), strict=True))
        else:
            values[next(name for name in values if re.search(rf"\b{name}\b", code))] = made
    call(**values)
    assert names
    return names


def called(code: str) -> set[str]:
    """The functions that a piece of code calls."""
    return set(re.findall(r"(\w+)\(", code))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", range(len(FOLLOWED)))
def test_code_in_an_error_works_when_it_is_run(case: int) -> None:
    follow(*FOLLOWED[case])


def test_objects_are_saved_again_as_the_error_says(tmp_path: Path) -> None:
    path = tmp_path / "items.npz"
    np.savez(path, embeddings=objects(ROWS), label=np.array(NAMES, object), allow_pickle=True)
    for name, code in (("embeddings", "np.stack"), ("label", ".astype(str)")):
        with pytest.raises(ValueError, match=re.escape(code)):
            read_vectors(path)
        with np.load(path, allow_pickle=True) as arrays:
            known = {key: arrays[key] for key in ("embeddings", "label")}
        known[name] = np.stack(known[name]) if name == "embeddings" else known[name].astype(str)
        np.savez(path, **known, allow_pickle=True)
    assert read_vectors(path).labels["label"].tolist() == NAMES
    np.savez(path, embeddings=(1000 * ROWS).astype(np.int64), label=np.array(NAMES))
    with pytest.raises(ValueError, match=re.escape("convert them with .astype(np.float32)")):
        read_vectors(path)
    np.savez(path, embeddings=(1000 * ROWS).astype(np.int64).astype(np.float32), label=np.array(NAMES))
    assert read_vectors(path).embeddings.shape == (6, 6)


def test_a_process_group_as_the_error_says() -> None:
    calls = [
        lambda: trivet.TripletLoss(positives="easy")(POINTS, NUMBERS, gather=True),
        lambda: metrics.retrieve_levels(ROWS, {"label": NUMBERS}, distributed=True),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"call torch\.distributed\.init_process_group"):
            call()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        for call in calls:
            call()
    finally:
        torch.distributed.destroy_process_group()


def test_a_batch_of_one_class_warns_as_one_of_singles_does() -> None:
    embeddings = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    every = [trivet.TripletLoss(), trivet.ContrastiveLoss(margin=1.0), trivet.MultiSimilarityLoss()]
    for each in every:
        for labels, message in (
            (torch.arange(4), "belong together, .*: got 4 of which no two do"),
            (torch.zeros(4, dtype=torch.int64), "do not belong together, .*: got 4 that all do"),
        ):
            with pytest.warns(UserWarning, match=f"a batch must contain two items that {message}.*PKBatches"):
                each(embeddings, labels)
            with torch.no_grad():
                each(embeddings, labels)  # an evaluation takes the batches that come
        each(embeddings, torch.tensor([0, 0, 1, 1]))


def _text(node: ast.AST) -> str:
    """The words of a text, X for what is put into it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "X" if isinstance(node, ast.FormattedValue) else ""


def sentences(node: ast.AST) -> Iterator[str]:
    """The texts in an expression, each once."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and (text := _text(node)):
        yield text
        node = ast.Module([part.value for part in ast.walk(node) if isinstance(part, ast.FormattedValue)], [])  # type: ignore[misc]  # walked, not compiled
    for child in ast.iter_child_nodes(node):
        yield from sentences(child)


@cache
def messages() -> list[tuple[Path, str]]:
    """Every sentence of an error or a warning, with the file that it is in; those of `how_to_...` are parts of some."""
    found = []
    for path, nodes in library().items():
        for node in nodes:
            parts: list[ast.AST] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                parts += node.args if name.endswith(("Error", "warn", "warning", "refuse")) else []
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("how_to_"):
                parts += node.body[1:]
            if parts:
                found.append((path, " ".join(text for part in parts for text in sentences(part))))
    return found


ELSEWHERE = {  # what a message calls -> the test that does it, or why none can
    "NAME": "tests/datasets/test_custom.py::test_in_python",
    **dict.fromkeys(("arange", "split"), "tests/mining/test_relations.py::test_advice_for_a_matrix_of_tags_works"),
    "LossTrainerCallback": "tests/integrations/test_loss_in_trainer.py::test_an_optimiser_that_is_there_is_said",
    "add_to": "tests/integrations/test_loss_in_trainer.py::test_an_optimiser_that_is_there_is_said",
    "optimizer_groups": "tests/losses/test_proxies.py::test_the_proxies_learn",
    "requires_grad_": "tests/integrations/test_loss_in_trainer.py::test_parameters_that_would_stay_are_an_error",
    "tokens": "tests/models/test_text_network.py::test_the_embedding_is_the_pooled_vector_of_each_text_alone",
    "loss": "how a loss is called, not what to do",
    "save": "Matlab is not there to run it",
    "savez": "tests/commands/test_mistakes.py::files",
    **dict.fromkeys(("dump", "load", "open"), "tests/io/test_vector_sets.py::test_lines_that_make_rows_of_other_forms"),
    **dict.fromkeys(
        ("reader", "strip", "writer", "writerows"),
        "tests/io/test_csv_files.py::test_spaces_around_quotes_are_named_and_the_lines_remove_them",
    ),
    "trusted_code": "tests/test_plugins.py::test_code_of_others_runs_only_if_it_is_trusted",
}


@pytest.mark.filterwarnings("ignore")
def test_every_piece_of_code_in_a_message_is_run_by_a_test() -> None:
    written = {name for _, message in messages() for name in called(" ".join(CODE.findall(message)))}
    run = set().union(*(follow(*case) for case in FOLLOWED))
    assert written - run == set(ELSEWHERE)
    for place in ELSEWHERE.values():
        path, _, name = place.partition("::")
        assert not name or f"def {name}(" in (TESTS.parent / path).read_text()


HINT = re.compile(r"trivet ([a-z]+)\b|(?<![\w-])(--[a-z][a-z-]*)|\b([a-z]+\.[a-z_]+)\b(?!\()")
FILES = (".json", ".toml", ".safetensors", ".py")


def test_options_commands_and_settings_in_messages_exist() -> None:
    """An option that a message of a command names is one of it, or of the command that is named before it."""
    sections, keys = known_settings()
    options = {name: set(_options(name)) for name in COMMANDS}
    every, wrong, count = set().union(*options.values()), [], 0
    for path, message in messages():
        where = path.relative_to(SOURCE).parts
        home = where[1] if where[0] == "commands" and where[1] in COMMANDS else ""
        named = home
        for command, option, setting in HINT.findall(message.replace("torchrun --no-python", "")):
            count += 1
            named = command or named
            known = options.get(named, set()) | options.get(home, set()) or every
            section, *inner = setting.split(".")
            if (command or "train") not in COMMANDS or (option and option not in known):
                wrong.append(f"{path}: {named} {option}")
            if section in sections and where[0] != "integrations" and not setting.endswith(FILES):
                wrong += [f"{path}: {setting}"] if not set(inner) <= keys else []
    assert not wrong, "\n".join(wrong)
    assert count > 250


def _options(name: str) -> Iterator[str]:
    command: Any = COMMANDS[name]
    for each in (command, *getattr(command, "commands", {}).values()):
        for option in each.params:
            yield from (*option.opts, *option.secondary_opts)


OPTION = re.compile(r"(\w+) ?= ?('[\w-]+'|True|False|\d+)")
KEYWORDS: list[tuple[Callable[..., object], dict[str, Any]]] = [
    (trivet.TripletLoss, {"soft_margin": 1.0}),
    (trivet.TripletLoss, {"reduction": "objective", "negatives": "hard"}),
    (lambda **options: trivet.mine(POINTS * 3, NUMBERS, **options), {"negatives": "distance-weighted"}),
    (lambda **options: trivet.TripletLoss(negatives="distance-weighted", **options)(POINTS * 3, NUMBERS), {}),
    (lambda **options: memory_of(**options).add(POINTS, NUMBERS, NUMBERS), {"embedding_dim": 3}),
]


def memory_of(**options: Any) -> CrossBatchMemory:
    return CrossBatchMemory(size=8, **options)


@pytest.mark.parametrize("case", range(len(KEYWORDS)))
def test_options_in_an_error_of_python_work_when_they_are_set(case: int) -> None:
    call, options = KEYWORDS[case]
    with pytest.raises(ValueError, match="=") as error:
        call(**options)
    remedy = str(error.value).partition(": got ")[2].partition("; ")[2]
    found = OPTION.findall(remedy) or OPTION.findall(str(error.value))
    advised = {name: ast.literal_eval(value) for name, value in found}
    assert advised
    call(**{**options, **advised})


def test_labels_without_a_level_are_given_one() -> None:
    for measure in (metrics.evaluate, metrics.retrieve_levels):
        for labels in (NUMBERS, NAMES, {}):
            with pytest.raises(ValueError, match=re.escape("give {'class': labels}")):
                measure(ROWS, labels)
        measure(ROWS, {"class": NUMBERS}, measures=["recall@1"])


COMMAND = re.compile(r"\btrivet (?!data download)[a-z]+( -[-a-z]+)* $")


def test_a_path_in_a_command_of_a_message_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    unquoted, count = [], 0
    for path, nodes in library().items():
        for node in nodes:
            before = ""
            for part in node.values if isinstance(node, ast.JoinedStr) else ():
                if isinstance(part, ast.FormattedValue) and COMMAND.search(before):
                    count += 1
                    unquoted += [] if ast.unparse(part.value).startswith("typed(") else [f"{path}: {before[-60:]}"]
                before += part.value if isinstance(part, ast.Constant) else "{}"
    assert not unquoted, "\n".join(unquoted)
    assert count > 15
    (run := tmp_path / "my run; touch gone").mkdir()
    with pytest.raises(ValueError, match="resume with") as error:
        model_folder(RunFolder(run))
    typed = str(error.value).partition("resume with ")[2].rstrip(".")
    assert shlex.split(typed) == ["trivet", "train", "--resume", str(run)]
