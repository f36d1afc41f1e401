"""A model goes to the hub and comes back equal; what must not leave does not, and what is wrong does not arrive."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from tests.commands.conftest import Call
from tests.commands.push.hub_server import READ, WRITE, WRONG, Hub, Repository, running
from tests.made_runs import make_run
from tests.programs import Programs, forget
from tests.small_texts import text_network

from trivet.commands.push.run import check_content
from trivet.models import ModelConfig, build, load_model, save

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # in the hub's client
NAME = "me/birds"
BOTH = ["model.safetensors", "model.json", "README.md"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub, whose token that may write is in the environment; the folder is entered."""
    with running() as server:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HF_TOKEN", WRITE)
        for name, value in (
            ("ENDPOINT", server.address),
            ("HUGGINGFACE_CO_URL_TEMPLATE", server.address + "/{repo_id}/resolve/{revision}/{filename}"),
            ("HF_HUB_CACHE", str(tmp_path / "cache")),
            ("HF_HUB_DISABLE_XET", True),
        ):
            monkeypatch.setattr(constants, name, value)
        yield server


def model_folder(path: Path, name: str = "mlp", **options: object) -> Path:
    texts = name.startswith("text:")
    config = ModelConfig.parse({"name": name, **({} if texts else {"embedding_dim": 3}), **options}, source="x")
    shape = (512,) if texts else (4,)
    save(build(config, shape, seed=1), config, shape, path)
    return path


def run_folder(path: Path) -> Path:
    make_run(path)
    model_folder(path / "model")
    return path


def same(a: Path, b: Path) -> bool:
    states = [load_model(folder).state_dict() for folder in (a, b)]
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][name], states[1][name]) for name in states[0]
    )


def test_a_run_goes_there_and_comes_back(hub: Hub, run_command: Call) -> None:
    run = run_folder(Path("birds"))
    code, out, err = run_command("push", run, NAME, "--licence", "mit", "--json")
    assert code == 0, err
    repository = hub.repositories[NAME]
    record = json.loads(out)
    assert record["revision"] == repository.commits[-1][0]
    assert (record["private"], repository.private, [*record["files"]]) == (True, True, BOTH)
    assert record["url"] == f"{hub.address}/{NAME}"
    assert [request for request in hub.requests if request.startswith("PUT")], "weights go as large files"
    card = repository.files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: trivet\nlicense: mit\n")
    assert f"trivet pull {NAME} -o FOLDER" in card
    assert "## Measures" in card
    assert "## Licence\n\nmit" in card
    code, out, err = run_command("pull", NAME, "-o", "back")
    assert code == 0, err
    assert sorted(file.name for file in Path("back").iterdir()) == sorted(BOTH)
    assert same(run, Path("back"))
    assert WRITE not in out + err + card


def push_and_pull(environment: dict[str, str]) -> None:
    """The program, in a process that knows of a hub by these variables alone."""
    for name in [name for name in os.environ if name.startswith("HF_")]:
        del os.environ[name]
    os.environ.update(environment)
    forget("trivet", "huggingface_hub")  # which reads its environment once
    from trivet.commands.main import main

    for line in (f"push model {NAME}", f"pull {NAME} -o back"):
        sys.argv = ["trivet", *line.split()]
        with pytest.raises(SystemExit, match=r"^0$"):
            main()


def test_a_folder_by_the_environment_alone(hub: Hub, programs: Programs, tmp_path: Path) -> None:
    """As a user has it: HF_ENDPOINT, the token in a file, and nothing of this process."""
    model_folder(Path("model"))
    Path("home").mkdir()
    Path("home/token").write_text(WRITE)
    names = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    ended = programs.run("tests.commands.push.test_push:push_and_pull", names, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr.decode()
    assert WRITE.encode() not in ended.stdout + ended.stderr
    assert same(Path("model"), Path("back"))


def test_a_network_of_texts_names_no_folder(hub: Hub, run_command: Call, tmp_path: Path) -> None:
    network = text_network(tmp_path / "mini")
    model_folder(Path("model"), f"text:{network}")
    code, _, err = run_command("push", "model", NAME, "--public")
    assert code == 0, err
    files = hub.repositories[NAME].files
    assert json.loads(files["model.json"])["model"]["name"] == "text:mini"
    assert {"transformer.json", "tokenizer.json"} <= files.keys()
    assert not any(str(tmp_path).encode() in content for content in files.values())
    model_folder(Path("other"))
    assert run_command("push", "other", NAME, "--public")[0] == 0  # a smaller model leaves nothing of the larger one
    assert sorted(hub.repositories[NAME].files) == sorted([".gitattributes", *BOTH])
    assert run_command("pull", NAME, "-o", "back")[0] == 0
    first = hub.repositories[NAME].commits[1][0]
    assert run_command("pull", NAME, "-o", "back", "--force", "--revision", first)[0] == 0
    assert (load_model("back").embed(["a text"]) == load_model("model").embed(["a text"])).all()


def test_a_network_of_each_side(hub: Hub, run_command: Call) -> None:
    sides = {side: {"name": "mlp", "embedding_dim": 3} for side in ("left", "right")}
    config = ModelConfig.parse({"name": "towers", **sides}, source="x")
    save(build(config, ((4,), (6,)), seed=1), config, ((4,), (6,)), Path("model"))
    code, _, err = run_command("push", "model", NAME)
    assert code == 0, err
    code, out, err = run_command("pull", NAME, "-o", "back", "--json")
    assert code == 0, err
    names = ["README.md", *(f"{s}model.{kind}" for s in ("left/", "right/") for kind in ("json", "safetensors"))]
    assert [*json.loads(out)["files"]] == sorted([*names, "model.json"])
    assert same(Path("model"), Path("back"))


def test_a_download_goes_on_where_it_was_cut(hub: Hub, run_command: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    run_command("push", model_folder(Path("model")), NAME)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 50)
    hub.cut = 100
    assert run_command("pull", NAME, "-o", "back")[0] == 0
    assert hub.ranges == ["bytes=100-"]
    assert same(Path("model"), Path("back"))


def test_what_is_not_what_the_hub_says_does_not_arrive(hub: Hub, run_command: Call) -> None:
    run_command("push", model_folder(Path("model")), NAME)
    hub.corrupt = True
    for _ in range(2):  # nothing of the first time is taken for right
        code, out, err = run_command("pull", NAME, "-o", "back")
        assert (code, out) == (2, "")
        assert "must have the hash that the hub states" in err
        assert not Path("back").exists()
    hub.corrupt = False
    assert run_command("pull", NAME, "-o", "back")[0] == 0


def test_only_the_files_of_a_model_arrive(hub: Hub, run_command: Call) -> None:
    run_command("push", model_folder(Path("model")), NAME)
    hub.repositories[NAME].commit("more", {**hub.repositories[NAME].files, "weights.pkl": b"x", "../up": b"x"})
    code, out, _ = run_command("pull", NAME, "-o", "back")
    assert code == 0
    assert "Not downloaded, as a model needs none of them: ../up, weights.pkl" in out
    assert sorted(file.name for file in Path("back").iterdir()) == sorted(BOTH)
    assert not any("weights.pkl" in request for request in hub.requests)
    assert "add --force" in run_command("pull", NAME, "-o", "back")[2]
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("x")
    assert run_command("pull", NAME, "-o", "mine", "--force")[0] == 2
    assert Path("mine/notes.txt").exists()


def test_who_may_do_what(hub: Hub, run_command: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder(Path("model"))
    accept = "the Hugging Face hub must accept the token for me/birds: it does not; log in with hf auth login"
    missing = "a repository of models must be on the Hugging Face hub, and open to you: me/birds is not found"
    assert missing in run_command("pull", NAME, "-o", "back")[2]
    for token, line in ((READ, accept), (WRONG, accept), ("", "a push needs a token")):
        monkeypatch.setenv("HF_TOKEN", token)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", "none")
        code, out, err = run_command("push", folder, NAME)
        assert (code, out) == (2, "")
        assert line in err
        assert not token or token not in err
        assert hub.repositories == {}
    monkeypatch.setenv("HF_TOKEN", WRITE)
    assert run_command("push", folder, NAME)[0] == 0
    for token, line in ((READ, ""), (WRONG, accept), ("", missing)):
        monkeypatch.setenv("HF_TOKEN", token)
        assert line in run_command("pull", NAME, "-o", f"back{token}")[2]
    assert Path(f"back{READ}").is_dir()


def test_a_repository_that_is_there(hub: Hub, run_command: Call) -> None:
    folder = model_folder(Path("model"))
    hub.repositories["me/open"] = Repository(private=False)
    hub.repositories["me/other"] = Repository(private=True, files={"pytorch_model.bin": b"x"})
    for arguments, line in (
        (["me/open"], "me/open is public; add --public"),
        (["me/other"], "me/other holds other files, and no model.json; choose another name"),
        (["birds"], "must be OWNER/NAME, of letters, digits, '-', '_' and '.': got 'birds'"),
        (["me/../birds"], "must be OWNER/NAME"),
        ([NAME, "--licence", "a\nb: c"], "--licence must be as the hub names it"),
    ):
        code, _, err = run_command("push", folder, *arguments)
        assert (code, line in err) == (2, True), err
    assert run_command("push", folder, "me/open", "--public")[0] == 0  # as the first error says
    assert run_command("push", folder, "me/open", "--public")[0] == 0  # and nothing is new
    assert run_command("push", folder, NAME)[0] == 0
    assert "me/birds is private; leave out --public" in run_command("push", folder, NAME, "--public")[2]
    assert "has no model.json" in run_command("pull", "me/other", "-o", "back")[2]
    assert "a revision must be in the repository" in run_command("pull", NAME, "-o", "back", "--revision", "gone")[2]


def test_no_network(hub: Hub, run_command: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    for arguments in (["push", model_folder(Path("model")), NAME], ["pull", NAME, "-o", "back"]):
        code, out, err = run_command(*arguments)
        assert (code, out) == (2, "")
        assert "me/birds on the Hugging Face hub cannot be reached (ConnectError" in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("prefix", f"{WRITE} ", "must hold no secret: model.json holds a text that looks like a token"),
        ("prefix", "postgresql://me:pass@host/x", "must hold no secret"),
        ("name", "python:mine.py:Net", "a network must be one that others have: model.json names 'python:mine.py:Net'"),
        (
            "weights",
            "/data/weights.safetensors",
            "must name no folder of this machine: model.json holds '/data/weights",
        ),
        ("weights", "C:\\weights", "must name no folder of this machine"),
        ("weights", "~/weights", "must name no folder of this machine"),
    ],
)
def test_secrets_folders_and_code_stay(key: str, value: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"model": {"name": "mlp", key: value}}))
    with pytest.raises(ValueError, match=re.escape(message)):
        check_content("model.json", file)
    file.write_text(json.dumps({"model": {"name": "timm:vit/b", "prefix": "query: ", "text": "a/b ~ c"}}))
    check_content("model.json", file)
    check_content("README.md", b"# A\n\npython:mine.py:Birds, labelled by class: /5\n~~~\n")


def test_a_card_and_weights_are_read_through(hub: Hub, run_command: Call) -> None:
    folder = model_folder(Path("model"))
    for text, line in (
        (f"token {WRITE}", "README.md holds a text"),
        ("in /home/me/x", "README.md holds "),
        ("in C:\\Users\\me", "README.md holds "),
    ):
        (folder / "README.md").write_text(text)
        code, _, err = run_command("push", folder, NAME)
        assert (code, line in err, WRITE in err) == (2, True, False)
    assert hub.requests == []
    (folder / "README.md").write_text("# Mine\n")
    assert run_command("push", folder, NAME)[0] == 0
    assert hub.repositories[NAME].files["README.md"].decode().endswith("---\n\n# Mine\n")


def test_a_run_without_a_model_is_not_sent(hub: Hub, run_command: Call) -> None:
    make_run(Path("run"))
    Path("empty").mkdir()
    assert "a run has a model once it has ended" in run_command("push", "run", NAME)[2]
    assert "a model folder must hold" in run_command("push", "empty", NAME)[2]
    assert hub.requests == []
