"""What an error says to do works when it is done, and what it names is there."""

from __future__ import annotations

import ast
import re
import shlex
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import pytest
import torch
from tests.sources import library
from tests.test_documented_commands import COMMANDS, known_settings

import trivet
from trivet import collapse, metrics
from trivet.collapse.probe import ProbeLevel
from trivet.datasets.arrays import read_arrays
from trivet.datasets.item_table import item_table
from trivet.io.read_embeddings import read_vectors
from trivet.knn.hard_negatives import hard_negatives
from trivet.knn.index import build_index
from trivet.label_noise import by_transition, symmetric, within_superclass
from trivet.samplers import CrossBatchMemory
from trivet.training.run_folder import RunFolder, model_folder

SOURCE = Path(str(trivet.__file__)).parent
TESTS = Path(__file__).parent
CALL = r"(?:[\w.]+)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?:\[1\])?"
CODE = re.compile(rf"{CALL}|(?<!')\b\w+\[[a-z]+\]")

POINTS = torch.eye(6)
NUMBERS = torch.tensor([0, 0, 1, 1, 2, 2])
NAMES = ["ash", "ash", "bay", "bay", "elm", "elm"]
ROWS = POINTS.numpy()
INDEX = build_index(ROWS)
TAGS = trivet.Tags([[name] for name in 2 * NAMES])


Line = tuple[Path, int | None]


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


def injected(table: np.ndarray, labels: np.ndarray) -> object:
    return within_superclass(labels, table, 0.2, generator=0)


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
    (lambda embeddings: collapse.diagnose(embeddings, NUMBERS), {"embeddings": objects(ROWS)}),
    (lambda embeddings: collapse.diagnose(embeddings, NUMBERS), {"embeddings": ROWS.astype(int)}),
    (lambda labels, rows: loss(labels=labels), {"labels": TAGS, "rows": torch.arange(6)}),
    (lambda relation, rows: evaluated(labels=relation), {"relation": TAGS, "rows": torch.arange(6)}),
    (lambda relation, rows: ProbeLevel.of_labels(relation, 6), {"relation": TAGS, "rows": torch.arange(6)}),
    (injected, {"table": np.array([0, 0, 1]), "labels": NUMBERS.numpy()}),
    (evaluated, {"labels": NUMBERS[:, None]}),
    (item_table, {"items": np.zeros((6, 4, 4), np.uint8)}),
    (evaluated, {"labels": np.array(NAMES)[:, None]}),
    (read_arrays, {"embeddings": ROWS.astype(int), "labels": NAMES}),
    (read_arrays, {"embeddings": ROWS.astype(int).tolist(), "labels": NAMES}),
    (read_arrays, {"embeddings": ROWS, "labels": np.array(NAMES)[:, None]}),
    (read_arrays, {"embeddings": ROWS, "labels": NUMBERS[:, None]}),
    (read_arrays, {"embeddings": ROWS[:4], "labels": NAMES}),
    (read_arrays, {"embeddings": ROWS, "labels": [*NAMES[:4], 7, 7]}),
]  # fmt: skip


class Followed(NamedTuple):
    """What was done as errors say."""

    names: set[str]  # of the functions that were called
    lines: set[Line]  # at which the errors were raised


def raised_at(error: BaseException) -> Line:
    """The file and the line that an error was raised at."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return Path(frame.filename), frame.lineno


def follow(call: Callable[..., object], values: dict[str, Any]) -> Followed:
    """Do what each error says until there is none."""
    values = {name: value() if callable(value) else value for name, value in values.items()}  # some warn when made
    names, lines, message = set[str](), set[Line](), ""
    for _ in range(4):
        try:
            call(**values)
            break
        except ValueError as error:
            message = str(error)
            lines.add(raised_at(error))
        code = CODE.findall(message.partition(": got ")[2])[-1]
        names |= called(code)
        made = eval(code, {"np": np, "numpy": np, "torch": torch, "PIL": PIL}, dict(values))
        if "both together" in message:
            names_of_both = re.findall(r"\w+labels|labels", code)
            values |= dict(zip(names_of_both, torch.from_numpy(made).chunk(2), strict=True))
        else:
            values[next(name for name in values if re.search(rf"\b{name}\b", code))] = made
    call(**values)
    assert lines
    return Followed(names, lines)


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


class Message(NamedTuple):
    """The sentence of an error or a warning, or a part of some that a function `how_to_...` makes."""

    path: Path
    line: int
    function: str  # that it is in
    text: str
    made: bool  # with such a part, or as one


@cache
def messages() -> list[Message]:
    """Every sentence of an error or a warning, and all parts of some."""
    found = []
    for path, nodes in library().items():
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        for node in nodes:
            parts: list[ast.AST] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                parts += node.args if name_of(node.func).endswith(("Error", "warn", "warning", "refuse")) else []
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("how_to_"):
                parts += node.body[1:]
            if parts:
                line = node.lineno  # type: ignore[attr-defined]  # of a call or a function
                around = [each for each in functions if each.lineno <= line <= (each.end_lineno or 0)]
                text = " ".join(text for part in parts for text in sentences(part))
                calls = [each.func for part in parts for each in ast.walk(part) if isinstance(each, ast.Call)]
                made = any(name_of(each).startswith("how_to_") for each in calls)
                found.append(Message(path, line, around[-1].name if around else "", text, made))
    return found


def name_of(function: ast.expr) -> str:
    """The last name of what is called, if it has one."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


TRAINER, TAG_TESTS = "tests/integrations/test_loss_in_trainer.py", "tests/mining/test_relations.py"
JOINED = "tests/io/test_vector_sets.py::test_labels_of_another_set_are_none_of_this_one"
SAVED = "tests/test_hints.py::test_objects_are_saved_again_as_the_error_says"
ARRAYS = "tests/datasets/test_arrays.py"
CALLED = "how a loss is called, not what to do"
ELSEWHERE = {  # where a message holds code -> the test that does what it says, or why none can
    "config/plugins.py:_check_trusted": "tests/test_plugins.py::test_code_of_others_runs_only_if_it_is_trusted",
    "datasets/arrays.py:label_columns": f"{ARRAYS}::test_numbers_that_name_classes_are_converted_as_the_error_says",
    "datasets/frames.py:check_dimensions": (
        f"{ARRAYS}::test_a_column_that_is_no_dimension_is_named_and_the_code_drops_it"
    ),
    "datasets/frames.py:check_order": f"{ARRAYS}::test_another_order_of_the_index_is_an_error_and_the_code_aligns",
    "datasets/custom.py:entry": "tests/datasets/test_custom.py::test_in_python",
    "datasets/mat.py:__init__": "Matlab is not there to run it",
    "integrations/any_training.py:_labels_of": (
        "tests/integrations/test_any_training.py::test_held_out_items_may_follow_any_relation"
    ),
    "integrations/any_training.py:watch": CALLED,
    "integrations/transformers.py:__init__": CALLED,
    "integrations/transformers.py:_check_trained": f"{TRAINER}::test_parameters_that_would_stay_are_an_error",
    "integrations/transformers.py:add_to": f"{TRAINER}::test_an_optimiser_that_is_there_is_said",
    "integrations/watch.py:end": CALLED,
    "io/csv_files.py:_check_quotes": (
        "tests/io/test_csv_files.py::test_spaces_around_quotes_are_named_and_the_lines_remove_them"
    ),
    "io/json_files.py:json_objects": "tests/io/test_vector_sets.py::test_lines_that_make_rows_of_other_forms",
    "io/npz_files.py:_check_no_objects": SAVED,
    "io/npz_files.py:_of_other_sets": JOINED,
    "io/vector_columns.py:decoded": SAVED,
    "metrics/protocols.py:_query_gallery_level": (
        "tests/metrics/test_relation_retrieval.py::test_a_gallery_with_cameras_junk_and_the_query_itself"
    ),
    "mining/grades.py:__init__": f"{TAG_TESTS}::test_advice_for_a_matrix_of_tags_works",
    "mining/relations.py:joined": f"{TAG_TESTS}::test_tags_made_of_each_side_are_joined",
    "mining/tags.py:_values": f"{TAG_TESTS}::test_advice_for_a_matrix_of_tags_works",
    "models/text_network.py:forward": (
        "tests/models/test_text_network.py::test_the_embedding_is_the_pooled_vector_of_each_text_alone"
    ),
    "samplers/memory.py:_check": f"{TAG_TESTS}::test_a_memory_is_of_one_relation",
    # What functions call that make parts of messages.
    **dict.fromkeys(("load", "savez"), JOINED),
    "Tags": f"{TAG_TESTS}::test_advice_for_a_matrix_of_tags_works",
}


@pytest.mark.filterwarnings("ignore")
def test_code_in_a_message_is_run_by_a_test() -> None:
    """Each place that raises a message with code, and each function that a part of some calls."""
    followed = [follow(*case) for case in FOLLOWED]
    lines = set().union(*(each.lines for each in followed))
    parts = [each for each in messages() if each.function.startswith("how_to_")]
    left = {
        f"{each.path.relative_to(SOURCE).as_posix()}:{each.function}"
        for each in messages()
        if each not in parts and (each.made or CODE.search(each.text)) and (each.path, each.line) not in lines
    }
    written = {name for each in parts for name in called(" ".join(CODE.findall(each.text)))}
    left |= written - set().union(*(each.names for each in followed))
    assert left == set(ELSEWHERE)
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
    for path, _, _, message, _ in messages():
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
