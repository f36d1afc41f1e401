"""Draw the pictures of docs/label_noise.md: .venv/bin/python docs/make_label_noise.py FOLDER

FOLDER is where the commands of the page were run: its audit.html is opened in the Chromium of playwright. The other
pictures are of the committed results.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from trivet.io.atomic_files import write_atomic
from trivet.reports.figure import BLUE, ORANGE, encode, panels, style

RESULTS = Path(__file__).parents[1] / "studies" / "results" / "label_noise.json"
QUOTED = RESULTS.with_name("quoted.json")
PICTURES = Path(__file__).parent / "label_noise"
RUNS = {
    "noisy": "20 % of the labels wrong",
    "mended": "relabelled by the audit",
    "topline": "right labels of the noisy alone",
    "clean": "all labels right",
}
SPLITS = {"seen": "new images of digits 0 to 5, trained on", "unseen": "digits 6 to 9, never trained on"}


def draw() -> None:
    """Recall@1 by digit, on new images of the digits trained on and on digits never seen."""
    measured = json.loads(QUOTED.read_text())["wrong labels"]["values"]
    recall = {
        run: {split: 100 * measured[run][f"trained, {split}, digit"]["recall@1"] for split in SPLITS} for run in RUNS
    }
    with style():
        picture, axes = panels(1, 1, height=2.4)
        axis = axes[0, 0]
        for position, run in enumerate(RUNS):
            for (split, told), shift, colour, hatch in zip(
                SPLITS.items(), (-0.2, 0.2), (BLUE, ORANGE), ("", "//"), strict=True
            ):
                height = recall[run][split]
                label = None if position else told
                axis.barh(position + shift, height, 0.36, color=colour, hatch=hatch, alpha=0.85, label=label)
                axis.text(height + 0.8, position + shift, f"{height:.1f}", va="center", fontsize=8)
        axis.set_yticks(range(len(RUNS)), [f"{run}: {told}" for run, told in RUNS.items()])
        axis.set(xlim=(0, 108), xlabel="recall@1 by digit (%)")
        axis.invert_yaxis()
        picture.legend(loc="outside upper center", ncols=2)
        write_atomic(PICTURES / "recall.svg", encode(picture, "svg"))


def calibrate() -> None:
    """Share that is wrong among labels of about equal probability: sets that the method was not chosen on."""
    cells = json.loads(RESULTS.read_text())["cells"]
    kinds: dict[str, list[dict[str, list[float]]]] = {"noise put in": [], "labels of people (CIFAR-10N)": []}
    for key, cell in cells.items():
        if key.startswith("case") and "chosen on" not in key and "known errors" not in key and "calibration" in cell:
            kind = "labels of people (CIFAR-10N)" if "cifar" in key else "noise put in"
            kinds[kind].append(cell["calibration"])
    with style():
        picture, axes = panels(1, 1, width=4.2, height=3.6)
        axis = axes[0, 0]
        axis.plot((0, 1), (0, 1), color="0.7", linewidth=1)
        for (kind, parts), colour, marker in zip(kinds.items(), (BLUE, ORANGE), "os", strict=True):
            items, mean, wrong = (np.array([part[name] for part in parts]) for name in ("items", "mean", "wrong"))
            total = items.sum(axis=0)
            x, y = ((items * one).sum(axis=0) / np.maximum(total, 1) for one in (mean, wrong))
            axis.plot(x[total > 0], y[total > 0], marker=marker, color=colour, label=kind)
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability that the label is wrong", ylabel="share that is wrong")
        axis.legend(loc="upper left")
        write_atomic(PICTURES / "calibration.svg", encode(picture, "svg"))


def photograph(page: Path) -> None:
    """The rate and the first suspect of the page."""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        window = browser.new_page(viewport={"width": 1000, "height": 1400}, color_scheme="light")
        window.goto(page.resolve().as_uri())
        card = window.locator("#card").bounding_box()
        assert card is not None
        bottom = card["y"] + card["height"] + 20
        window.screenshot(path=PICTURES / "audit.png", clip={"x": 0, "y": 0, "width": 1000, "height": bottom})
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the commands of the page were run")
    folder = parser.parse_args().folder
    PICTURES.mkdir(exist_ok=True)
    calibrate()
    draw()
    photograph(folder / "audit.html")
