"""Reads the folder of a pretrained text network, of sentence-transformers or transformers; no code in it is run."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from torch import nn

from trivet.models.config import TEXT
from trivet.models.static_texts import MODULE, register_static, static_shape, static_tokenizer
from trivet.models.text_settings import Pooling, TextNetworkConfig
from trivet.models.tokens import VOCABULARY, Tokenizer, check_ids
from trivet.models.weights import reach_hub
from trivet.runtime.extras import load
from trivet.runtime.safe_read import panics, read_json
from trivet.runtime.text import abbreviated

REASON_LENGTH = 200  # characters of what a library says of an error
LONGEST = 512  # tokens of a text, where nothing says how many
LARGEST, MOST_LAYERS = 2**27, 1000  # of a whole number of a configuration; some stand for "without end"
TEXT_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]  # of a repository of the hub
SKIPPED_FILES = ["onnx/*", "openvino/*"]
UNSAFE = ("auto_map", "_attn_implementation", "attn_implementation", "quantization_config", "_name_or_path")


class TextFolder(NamedTuple):
    """A pretrained text network on disk.

    Attributes:
        name: as the settings give it, without "text:".
        transformer: the folder of its `config.json`, weights and tokenizer.
        pooling, max_tokens: as it says; None for plain transformers.
        prefix: its default prompt.
        lower: whether texts are put in lower case before its tokenizer sees them.
        static: whether it has a vector for each token and no layer.
    """

    name: str
    transformer: Path
    pooling: Pooling | None = None
    max_tokens: int | None = None
    prefix: str = ""
    lower: bool = False
    static: bool = False


def find_text_folder(name: str) -> TextFolder:
    """The pretrained network that the settings name: a folder, or a model of the Hugging Face hub, downloaded once.

    Raises:
        ValueError: if there is none, it cannot be had, or it is built of other parts than a transformer, a pooling of
            one kind and a scaling to length 1.
    """
    wanted = name.removeprefix(TEXT)
    folder = Path(wanted).expanduser()
    if not folder.is_dir():
        if folder.is_absolute() or wanted.startswith((".", "~")) or wanted.count("/") > 1:
            siblings = [other.name for other in folder.parent.iterdir()] if folder.parent.is_dir() else []
            close = difflib.get_close_matches(folder.name, siblings, n=1)
            guess = f"did you mean {folder.with_name(close[0])}?" if close else "check the path."
            raise ValueError(f"model.name must name a folder that exists: got {wanted}; {guess}")
        folder = _downloaded(wanted)
    if not (folder / "modules.json").is_file():
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"a text network must be a folder of sentence-transformers or transformers: {wanted} has no "
                "config.json; check the path."
            )
        return TextFolder(wanted, folder)
    return _read_modules(wanted, folder)


def _read_modules(name: str, folder: Path) -> TextFolder:
    """A sentence-transformers folder, in its present form or an older one."""
    try:
        modules = [
            (str(module["type"]).rpartition(".")[2], folder / module["path"])
            for module in _json(folder / "modules.json")
        ]
    except (KeyError, TypeError):
        raise ValueError(f"{folder / 'modules.json'} must list the modules of a network; save it again.") from None
    kinds = [kind for kind, _ in modules]
    model_config = _optional(folder / "config_sentence_transformers.json")
    prompts, chosen = model_config.get("prompts") or {}, model_config.get("default_prompt_name")
    prefix = str(prompts.get(chosen) or "") if isinstance(prompts, Mapping) and isinstance(chosen, str) else ""
    if kinds in ([MODULE], [MODULE, "Normalize"]):
        return TextFolder(name, modules[0][1], "mean", prefix=prefix, static=True)
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(
            "a sentence-transformers model must consist of a StaticEmbedding, or a Transformer and a Pooling, and, "
            f"where there is one, a Normalize: {name} has {', '.join(kinds) or 'nothing'}; use another, or embed the "
            "texts with it and train on the vectors."
        )
    (_, transformer), (_, pooling) = modules[:2]
    transformer_config = _optional(transformer / "sentence_bert_config.json")
    length = transformer_config.get("max_seq_length")
    return TextFolder(
        name,
        transformer,
        _pooling(name, _json(pooling / "config.json")),
        length if isinstance(length, int) and length > 0 else None,
        prefix,
        transformer_config.get("do_lower_case") is True,
    )


def _pooling(name: str, config: Mapping[str, Any]) -> Pooling:
    mode = config.get("pooling_mode")
    if mode is None:
        old = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
        modes = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        mode = old.get(modes[0], modes[0]) if len(modes) == 1 else modes or "mean"
    known: tuple[Pooling, ...] = get_args(Pooling)
    for pooling in known:
        if mode in (pooling, [pooling]):
            return pooling
    raise ValueError(
        f"the pooling must be one of {', '.join(known)}: {name} has {mode}; use another model, or embed the texts with "
        "it and train on the vectors."
    )


def read_text_tokenizer(folder: TextFolder, *, max_tokens: int | None, prefix: str, vocabulary: int) -> Tokenizer:
    """The tokenizer of a folder, for texts of `max_tokens`: None for what it takes, but at most 512.

    Raises:
        ValueError: if there is none that Trivet can use.
    """
    if folder.static:
        return static_tokenizer(
            folder.transformer, max_tokens=max_tokens or LONGEST, prefix=prefix, vocabulary=vocabulary
        )
    library = load("transformers")
    with quiet(library):
        try:
            for file in ("tokenizer.json", "vocab.json"):
                if (folder.transformer / file).is_file():
                    check_ids(folder.transformer / file)
            with panics():
                tokenizer = library.AutoTokenizer.from_pretrained(
                    str(folder.transformer), local_files_only=True, trust_remote_code=False
                )
                # A copy, which is changed.
                rules = load("tokenizers").Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        except Exception as error:  # the library raises many kinds
            raise _broken(folder, "tokenizer", error) from None
    if folder.lower:
        normalizers = load("tokenizers.normalizers")
        first = normalizers.Lowercase()
        rules.normalizer = first if rules.normalizer is None else normalizers.Sequence([first, rules.normalizer])
    length = max_tokens or min(LONGEST, int(tokenizer.model_max_length))
    return Tokenizer(rules, max_tokens=length, prefix=prefix, vocabulary=vocabulary)


def architecture(values: Mapping[str, Any]) -> Any:
    """The `transformers` configuration of such values, without what names code or changes how weights are kept.

    Raises:
        ValueError: if it is no encoder of texts that `transformers` itself knows.
    """
    library = load("transformers")
    if not isinstance(values, Mapping):
        raise ValueError("it is no table of settings")
    register_static()
    settings = {key: value for key, value in values.items() if key not in UNSAFE}
    wrong = [key for key, value in settings.items() if isinstance(value, int) and value > LARGEST]
    layers = settings.get("num_hidden_layers", 1)
    if wrong or not isinstance(layers, int) or layers > MOST_LAYERS:
        raise ValueError(f"its {(wrong or ['num_hidden_layers'])[0]} is no number of a network")
    kind = settings.pop("model_type", None)
    if not isinstance(kind, str):
        raise ValueError("it has no model_type")
    try:
        config = library.AutoConfig.for_model(kind, **settings)
    except Exception as error:  # the library raises many kinds
        raise ValueError(" ".join(str(error).split())) from None
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{kind} has an encoder and a decoder, and only an encoder is needed")
    if not isinstance(getattr(config, "hidden_size", None), int):
        raise ValueError(f"{kind} has no single hidden_size")
    return config


def read_network(folder: TextFolder, config: Any) -> nn.Module:
    """The transformer of an `architecture`, with its weights in float32, from safetensors only; without a pooler.

    Raises:
        ValueError: if weights are missing, or do not fit.
    """
    library = load("transformers")
    with quiet(library):
        try:
            network, loading = library.AutoModel.from_pretrained(
                str(folder.transformer),
                config=config,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
        except Exception as error:  # the library raises many kinds
            raise _broken(folder, "weights", error) from None
    random = sorted(key for key in loading["missing_keys"] if "pooler." not in key)
    random += [str(entry[0] if isinstance(entry, tuple | list) else entry) for entry in loading["mismatched_keys"]]
    if random:
        raise ValueError(
            f"the weights of {folder.name} must be those of the network in its config.json: {abbreviated(random, 4)} "
            "are missing or of another shape; use a complete model."
        )
    return without_pooler(network.float())


def without_pooler(network: Any) -> nn.Module:
    """The transformer without the layer that only its classifier used, which would never be trained."""
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = None
    made: nn.Module = network
    return made


class TextSource(NamedTuple):
    """A pretrained text network, read as the settings say; its weights are still on disk."""

    folder: TextFolder
    config: TextNetworkConfig  # resolved
    tokenizer: Tokenizer
    architecture: Any


def open_text(config: TextNetworkConfig) -> TextSource:
    """The network of the settings, which get what its folder decides, so that a run no longer depends on it for them.

    Raises:
        ValueError: if the network cannot be found, or `embedding_dim` does not fit it.
    """
    folder = find_text_folder(config.name)
    with quiet(load("transformers")):
        try:
            file = folder.transformer / "model.safetensors" if folder.static else folder.transformer / "config.json"
            shape = architecture(static_shape(file) if folder.static else _json(file))
        except (ValueError, TypeError) as error:
            raise _broken(folder, "configuration", error) from None
    width = int(shape.hidden_size)
    prefix = folder.prefix if config.prefix is None else config.prefix
    tokenizer = read_text_tokenizer(
        folder,
        max_tokens=config.max_tokens or folder.max_tokens,
        prefix=prefix,
        vocabulary=getattr(shape, "vocab_size", VOCABULARY),
    )
    here = Path(folder.name).expanduser()
    resolved = {
        "name": TEXT + (str(here.resolve()) if here.is_dir() else folder.name),
        "embedding_dim": config.embedding_dim or width,
        "pooling": config.pooling or folder.pooling or "mean",
        "max_tokens": tokenizer.max_tokens,
        "prefix": prefix,
    }
    if config.head == "none" and resolved["embedding_dim"] != width:
        raise ValueError(
            f'model.embedding_dim must be that of the network, {width}, with head = "none": got '
            f'{config.embedding_dim}; leave it out, or set model.head = "linear".'
        )
    return TextSource(folder, config.model_copy(update=resolved), tokenizer, shape)


def resolved_text(config: TextNetworkConfig) -> TextNetworkConfig:
    """The settings of `open_text`."""
    return open_text(config).config


def _json(file: Path) -> Any:
    try:
        return read_json(file, "a file of a text network")
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} must be a JSON file: {' '.join(str(error).split())}; download it again.") from None


def _optional(file: Path) -> Mapping[str, Any]:
    values = _json(file) if file.is_file() else {}
    return values if isinstance(values, Mapping) else {}


def _broken(folder: TextFolder, component: str, error: Exception) -> ValueError:
    return ValueError(
        f"the {component} of the text network {folder.name} cannot be used ({briefly(error)}); it must be an "
        "encoder of texts that transformers knows, with model.safetensors and a fast tokenizer."
    )


def briefly(error: Exception) -> str:
    """The kind of an error of another library, and its first sentence."""
    reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
    return f"{type(error).__name__}: {reason if len(reason) <= REASON_LENGTH else f'{reason[:REASON_LENGTH]} ...'}"


@contextlib.contextmanager
def quiet(library: Any) -> Iterator[None]:
    """Without progress bars and warnings of transformers: what matters is raised."""
    logs = library.utils.logging
    verbosity, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity(50)
    logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(verbosity)
        if bars:
            logs.enable_progress_bar()


def _downloaded(name: str) -> Path:
    """The folder of a model of the hub, in its cache; asked for once first, as downloads repeat a failed connection."""
    import huggingface_hub as hub

    try:
        try:
            folder = Path(hub.snapshot_download(name, allow_patterns=TEXT_FILES, local_files_only=True))
            if (folder / "config.json").is_file() or (folder / "modules.json").is_file():
                return folder
        except (FileNotFoundError, OSError):  # not in the cache
            pass
        reach_hub(name)
        return Path(hub.snapshot_download(name, allow_patterns=TEXT_FILES, ignore_patterns=SKIPPED_FILES))
    except Exception as error:  # the hub's client raises many kinds
        raise ValueError(
            f"the text network {name} is no folder here and could not be downloaded ({briefly(error)}); "
            "check the name, or copy its folder from a machine that has it."
        ) from None
