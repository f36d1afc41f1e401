"""Commands: exit codes, one JSON object on standard output, one sentence per mistake."""

from __future__ import annotations

import itertools
import json
import os
import pkgutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.commands.conftest import Call
from tests.nightly import sampled

from trivet.commands.train.record import CrossValidation

pytestmark = pytest.mark.usefixtures("few_digits", "undiagnosed")

SETTINGS = """
[data]
name = "digits"
[batch]
num_classes = 2
samples_per_class = 6
[model]
name = "linear"
embedding_dim = 3
[loss]
name = "triplet"
positives = "easy"
[training]
steps = 4
accelerator = "cpu"
[evaluation]
map_points = 20
sample = 50
nmi_plus = 2
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIVET_DATA", raising=False)
    (tmp_path / "small.toml").write_text(SETTINGS)
    return tmp_path / "small.toml"


def clusters(measured: dict[str, float]) -> float:
    """Clusters of NMI+ for each class."""
    return measured["nmi+_clusters"] / measured["classes"]


def test_train_evaluate_embed(settings: Path, run_command: Call) -> None:
    code, out, _ = run_command("train", "small.toml", "--json")
    trained = json.loads(out)
    assert code == 0
    assert trained["run"] == "runs/small"
    assert Path(trained["report"]).is_file()
    assert set(trained["evaluation"]) == {"parity", "digit"}
    for level in trained["evaluation"].values():
        for measure in ("recall@1", "recall@2", "recall@4", "recall@8", "nmi", "nmi+"):
            assert 0 <= level[measure] <= 1
    assert set(trained["splits"]) == {"seen", "unseen"}

    code, out, _ = run_command("evaluate", "runs/small", "--json")
    assert code == 0
    assert json.loads(out)["evaluation"] == trained["evaluation"]
    code, out, _ = run_command("evaluate", "runs/small")
    assert code == 0
    assert "untrained network" in out

    # Any other option measures the embeddings that the run holds, and none is passed over.
    before = Path("runs/small/record.json").read_bytes()
    for options, check in (
        (("--nmi-plus", "3"), lambda found: clusters(found["evaluation"]["parity"]) == 3),
        (("--seed", "0"), lambda found: found["seed"] == 0),
        (("--without-positive", "drop"), lambda found: found["protocol"]["without_positive"] == "drop"),
    ):
        code, out, _ = run_command("evaluate", "runs/small", *options, "--json")
        assert (code, check(json.loads(out))) == (0, True), options
    assert Path("runs/small/record.json").read_bytes() == before
    refused = ("evaluate", "runs/small", "--seed", "1", "--data-root", ".")
    code, out, err = run_command(*refused)
    assert (code, out, err.count("\n"), "leave out --data-root" in err) == (2, "", 1, True)

    embed = ("embed", "runs/small", "digits", "--output", "all.parquet")
    code, out, _ = run_command(*embed, "--json")
    assert (code, json.loads(out)["items"]) == (0, 500)
    code, _, err = run_command(*embed)
    assert (code, err.count("\n")) == (2, 1)
    assert "all.parquet exists" in err


def images(root: Path, classes: dict[str, int]) -> None:
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (8, 8), (number * 5 % 255, len(name) * 9 % 255, 0)).save(root / name / f"{number}.png")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train"], "train needs your data or a settings file"),
        (["train", "nowhere.toml"], "nowhere.toml does not exist"),
        (["train", "small.toml", "--set", "loss.negatives=seminard"], "did you mean 'semihard'?"),
        (["train", "small.toml", "--set", "data.name=mnist"], "trivet data download mnist"),
        (["train", "small.toml", "--set", "data.name=folder", "--set", "data.root=gone"], "gone does not exist"),
        (["train", "small.toml", "--set", "data.name=folder", "--set", "data.root=lonely"], "has one"),
        (
            ["train", "small.toml", "--set", "data.name=folder", "--set", "data.root=same"],
            "needs at least four classes",
        ),
        (
            [
                "train",
                "small.toml",
                "--set",
                "data.name=folder",
                "--set",
                "data.root=same",
                "--set",
                "data.split=in-class",
            ],
            "training needs at least two classes, so that there is a negative",
        ),
        (["train", "small.toml", "--output", "small.toml"], "--output must not name what is read: got small.toml"),
        (["embed", ".", "digits", "-o", "."], "--output must not name what is read: got ."),
        (["train", "small.toml", "--output", "small.toml/below"], "must be readable and writable"),
        (["train", "--resume", "lonely"], "a run folder must hold config.toml"),
        (["train", "small.toml", "--resume", "."], "leave out the settings or data"),
        (["evaluate", "nowhere"], "an input must exist: nowhere does not exist"),
        (["embed", "lonely", "digits", "-o", "x.parquet"], "a run folder must hold config.toml"),
        (["data", "download", "nist"], "did you mean 'mnist'?"),
        (["train", "--stpes", "3"], "stpes"),
        (["trian"], "trian"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], said: str, settings: Path, run_command: Call
) -> None:
    images(Path("lonely"), {"a": 3, "b": 1, "c": 3, "d": 3})
    images(Path("same"), {"a": 9})
    code, out, err = run_command(*arguments)
    assert (code, out) == (2, "")
    *progress, sentence = err.splitlines()
    assert all(line.startswith("reading images ") for line in progress)
    assert sentence.startswith("trivet: ")
    assert said in sentence
    assert not Path("runs").exists()


@pytest.mark.usefixtures("unevaluated")
def test_corrupt_images_are_listed_or_stop_the_run(settings: Path, run_command: Call) -> None:
    images(Path("photos"), {"a": 30, "b": 30, "c": 30, "d": 30})
    Path("photos/b/7.png").write_bytes(Path("photos/b/7.png").read_bytes()[:40])
    change = ["--set", "data.name=folder", "--set", "data.root=photos", "--set", "data.image_size=8"]
    code, _out, _ = run_command("train", "small.toml", *change, "--json")
    assert code == 0
    record = json.loads(Path("runs/small/record.json").read_text())
    assert [skip["id"] for skip in record["data"]["skipped"]] == ["b/7.png"]
    Path("photos/a/3.png").write_bytes(b"")
    code, _, err = run_command("train", "small.toml", *change, "--force")
    assert code == 2
    assert "2 of 120" in err
    assert json.loads(Path("runs/small/record.json").read_text())["status"] == "finished"


def test_an_unexpected_fault_is_exit_code_1(settings: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("trivet.commands.train.run.load_splits", broken)
    code, out, err = run_command("train", "small.toml")
    assert (code, out) == (1, "")
    assert "unexpected RuntimeError: a bug" in err


@pytest.mark.parametrize("variable", ["WORLD_SIZE=2", "RANK=1", "LOCAL_RANK=3", "SLURM_PROCID=1", "WORLD_SIZE=1"])
def test_processes_that_cannot_meet_are_refused(
    variable: str, settings: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    monkeypatch.setenv(*variable.split("="))
    change = () if variable != "WORLD_SIZE=1" else ("--set", "data.root=gone", "--set", "data.name=folder")
    code, out, err = run_command("train", "small.toml", *change)
    assert (code, out, err.count("\n"), Path("runs").exists()) == (2, "", 1, False)
    assert ("torchrun" in err) == (variable != "WORLD_SIZE=1")  # one of one is alone
    assert ("gone does not exist" in err) == (variable == "WORLD_SIZE=1")


def test_a_cross_validation_is_started_once(settings: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    code, out, err = run_command("train", "small.toml", "--folds", "2")
    assert (code, out, Path("runs").exists()) == (2, "", False)
    assert "start it once, without torchrun, and set training.devices" in err


def test_a_cross_validation_is_resumed_as_a_whole(
    settings: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    Path("runs").mkdir()
    Path("runs/folds.toml").touch()
    ended = {"folds": 2, "runs": ["runs/fold-0"], "status": "interrupted"}
    monkeypatch.setattr("trivet.commands.train.folds.resume_folds", lambda path, **_: CrossValidation.read(ended))
    code, out, err = run_command("train", "--resume", "runs", "--json")
    assert (code, json.loads(out)) == (1, ended)
    assert err == "trivet: stopped; continue with trivet train --resume runs\n"
    code, _, err = run_command("train", "--resume", "runs", "--set", "seed=2")
    assert (code, "leave out --set" in err) == (2, True)


@pytest.fixture
def signals_arrive() -> Iterator[None]:
    """Also where the tests run in the background of a shell, which has such processes ignore Ctrl-C."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def nothing() -> None:
    """Done before or after what is wrapped."""


def wrap(
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[], None] = nothing,
    after: Callable[[], None] = nothing,
) -> None:
    """Do something before or after each call of a function."""
    owner, _, name = place.rpartition(".")
    original = getattr(pkgutil.resolve_name(owner), name)

    def wrapped(*arguments: object, **options: object) -> object:
        before()
        result = original(*arguments, **options)
        after()
        return result

    monkeypatch.setattr(f"{owner}.{name}", wrapped)


@pytest.mark.usefixtures("signals_arrive")
def test_a_signal_after_the_last_step_leaves_a_run_to_evaluate(
    settings: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    moves = itertools.count(1)  # to the device, and back after the last step

    def end() -> None:
        if next(moves) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    wrap("trivet.training.loop.Learner.move", monkeypatch, before=end)
    code, out, err = run_command("train", "small.toml", "--json")
    assert (code, json.loads(out)["status"]) == (1, "interrupted")
    assert "before the evaluation was complete; continue with trivet evaluate" in err.splitlines()[-1]
    assert json.loads(Path("runs/small/record.json").read_text())["step"] == 4


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("commands.train.run.load_splits", signal.SIGTERM),
        ("training.loop.Learner.move", signal.SIGTERM),
        ("training.trainer.Trainer.save", signal.SIGTERM),
        ("training.trainer.Trainer.save", signal.SIGHUP),
        ("training.trainer.Trainer._after_step", signal.SIGTERM),
    ],
    ids=["reading data", "before the first step", "first checkpoint", "hang-up", "twice in a step"],
)
def test_a_signal_before_the_first_checkpoint_puts_the_old_run_back(
    moment: str, number: signal.Signals, settings: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    old = {"config.toml": "the old one", "model/model.json": "{}"}
    for name, text in old.items():
        Path("runs/small", name).parent.mkdir(parents=True, exist_ok=True)
        Path("runs/small", name).write_text(text)

    def ask() -> None:
        """Once while the loop is at work, which notes the request; else until it is granted."""
        for _ in range(2 if moment.endswith("_after_step") else 1):
            os.kill(os.getpid(), number)
        for _ in range(0 if "Learner" in moment else 600):
            time.sleep(0.1)  # short, as below

    wrap(f"trivet.{moment}", monkeypatch, before=ask)
    code, out, err = run_command("train", "small.toml", "--force")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("trivet: stopped")
    held = {str(file.relative_to("runs/small")): file for file in Path("runs/small").rglob("*") if file.is_file()}
    held.pop(".lock", None)
    assert {name: file.read_text() for name, file in held.items()} == old
    assert [item.name for item in Path("runs").iterdir()] == ["small"]


def test_data_list(run_command: Call) -> None:
    code, out, _ = run_command("data", "list", "--json")
    assert code == 0
    levels = {one["name"]: one["levels"] for one in json.loads(out)["data"]}
    assert levels["omniglot"] == ["alphabet", "character"]


def test_version(run_command: Call) -> None:
    assert run_command("--version")[:2] == (0, "trivet 0.1.0\n")


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM], 2))
def test_a_signal_leaves_a_run_that_goes_on(number: signal.Signals, settings: Path, run_command: Call) -> None:
    metrics = Path("runs/small/metrics.csv").absolute()

    def send() -> None:
        """Once the run has logged three steps, the signal that a terminal or a cluster would send."""
        for _ in range(600):
            if metrics.exists() and metrics.read_text().count("\n") > 3:
                os.kill(os.getpid(), number)
                return
            time.sleep(0.1)  # until the run has written its rows

    steps = ("--set", "training.steps=100000", "--set", "training.log_every=1")
    sender = threading.Thread(target=send)
    sender.start()
    code, out, err = run_command("train", "small.toml", *steps, "--json")
    sender.join()
    assert code == 1
    assert json.loads(out)["status"] == "interrupted"
    assert "continue with trivet train --resume runs/small" in err.splitlines()[-1]
    record = json.loads(Path("runs/small/record.json").read_text())
    done = record["step"]
    assert record["status"] == "interrupted"
    assert record["curves"]["step"][-1] == done
    assert Path("runs/small/report.html").is_file()

    # Shorten the run so that the rest takes no time, and go on.
    text = Path("runs/small/config.toml").read_text()
    Path("runs/small/config.toml").write_text(text.replace("steps = 100000", f"steps = {done + 2}"))
    code, out, _ = run_command("train", "--resume", "runs/small", "--json")
    assert (code, json.loads(out)["status"]) == (0, "finished")
    steps_logged = [line.split(",")[0] for line in metrics.read_text().splitlines()[1:]]
    assert steps_logged == [str(step) for step in range(1, done + 3)]


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("number", sampled([signal.SIGTERM, signal.SIGINT], 2))
def test_a_signal_while_a_run_is_evaluated_leaves_a_run_to_evaluate(
    number: signal.Signals, settings: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    folder = Path("runs/small")

    def measured(*_: object, **__: object) -> None:
        assert json.loads((folder / "record.json").read_text())["status"] == "running"
        os.kill(os.getpid(), number)
        for _ in range(600):  # the signal may reach another thread, and then interrupts no long sleep of this one
            time.sleep(0.1)  # short: a signal that reaches another thread ends no longer sleep

    with monkeypatch.context() as patch:
        patch.setattr("trivet.commands.evaluate.trained_model.measure_split", measured)
        code, out, err = run_command("train", "small.toml", "--json")
    assert code == 1
    assert json.loads(out)["status"] == "interrupted"
    said = "trivet: stopped before the evaluation was complete; continue with trivet evaluate runs/small"
    assert err.splitlines()[-1] == said
    record = json.loads((folder / "record.json").read_text())
    assert (record["status"], record["step"], record["evaluation"]) == ("interrupted", 4, {})
    assert "interrupted" in (folder / "report.html").read_text()

    code, out, _ = run_command("evaluate", "runs/small", "--json")
    assert (code, json.loads(out)["status"], set(json.loads(out)["splits"])) == (0, "finished", {"seen", "unseen"})
