"""The catalogue of pretrained encoders: what each is, what it was trained on, what it costs and who may use it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Literal

from trivet.config.plugins import is_reference, python_object
from trivet.models.config import TEXT, TIMM, TORCHVISION

EncoderKind = Literal["images", "texts"]
NON_COMMERCIAL = ("-nc", "noncommercial", "non-commercial", "research")  # in the name of a licence


@dataclass(frozen=True)
class Encoder:
    """A pretrained network, whose vectors a model can begin as.

    What prepares an image, its mean and deviation of colours, is timm's of the same name; the tokenizer, the pooling
    and the length of a text are those of its folder.

    Attributes:
        name: short, for options and reports.
        kind: what it embeds, "images" or "texts".
        network: its `model.name`: "timm:NAME", "text:" and its repository of the Hugging Face hub, or "python:..." of
            one outside Trivet.
        width: numbers of a vector; 0 where that is not known.
        licence: as its repository has it; empty where that is not known.
        trained_on: the data, in a few words.
        warning: which benchmarks it may know already, in a sentence, or empty.
        megabytes: of the download, about.
        per_second: images of 224 x 224 pixels, or short texts, on two cores of a CPU, about.
        measured: whether that was measured with its weights, not estimated from the size of the network.
        pixels: side of the images that it was trained on.
        patch: an image is cut into squares of that side; 1 for convolutions.
        prefix: text before each text.
        revision: commit of its repository; empty: the newest, which is recorded in the cache at the download.
    """

    name: str
    kind: EncoderKind
    network: str
    width: int = 0
    licence: str = ""
    trained_on: str = ""
    warning: str = ""
    megabytes: int = 0
    per_second: int = 0
    measured: bool = False
    pixels: int = 0
    patch: int = 1
    prefix: str = ""
    revision: str = ""

    @property
    def repository(self) -> str:
        """Its repository of the Hugging Face hub; empty where there is none."""
        if self.network.startswith(TIMM):
            return f"timm/{self.network.removeprefix(TIMM)}"
        return self.network.removeprefix(TEXT) if self.network.startswith(TEXT) else ""

    @property
    def commercial(self) -> bool:
        """False if its licence forbids commercial use."""
        return not any(word in self.licence.lower() for word in NON_COMMERCIAL)

    def image_size(self, pixels: int) -> int:
        """The side of images, near to `pixels` and at most what it was trained on, that is cut into whole squares."""
        most = min(pixels, self.pixels or pixels)
        return self.patch * max(1, round(most / self.patch))


# Each continues what it was trained on.
_IMAGENET = "Some test images of CUB-200 are among them."
_WEB = "Photographs of any benchmark may be among them."
_CURATED = "They are like those of ImageNet, CUB-200, Stanford Cars, Food-101 and others: results on these flatter it."
_QUESTIONS = "Questions of Quora, MS MARCO and Natural Questions are among them."

CATALOGUE = (
    Encoder(
        "efficientnet-lite0",
        "images",
        "timm:tf_efficientnet_lite0.in1k",
        width=1280,
        licence="apache-2.0",
        trained_on="1.3 million images of ImageNet-1k, with labels",
        warning=_IMAGENET,
        megabytes=19,
        per_second=60,
        pixels=224,
    ),
    Encoder(
        "resnet50",
        "images",
        "timm:resnet50.a1_in1k",
        width=2048,
        licence="apache-2.0",
        trained_on="1.3 million images of ImageNet-1k, with labels",
        warning=_IMAGENET,
        megabytes=102,
        per_second=14,
        pixels=224,
        revision="767268603ca0cb0bfe326fa87277f19c419566ef",
    ),
    Encoder(
        "resnet50-swsl",
        "images",
        "timm:resnet50.fb_swsl_ig1b_ft_in1k",
        width=2048,
        licence="cc-by-nc-4.0",
        trained_on="1 billion images of Instagram with hashtags, then ImageNet-1k",
        warning=_WEB,
        megabytes=102,
        per_second=14,
        pixels=224,
    ),
    Encoder(
        "dino-vits16",
        "images",
        "timm:vit_small_patch16_224.dino",
        width=384,
        licence="apache-2.0",
        trained_on="1.3 million images of ImageNet-1k, without labels",
        warning=_IMAGENET,
        megabytes=87,
        per_second=16,
        pixels=224,
        patch=16,
    ),
    Encoder(
        "dinov2-vits14",
        "images",
        "timm:vit_small_patch14_dinov2.lvd142m",
        width=384,
        licence="apache-2.0",
        trained_on="142 million images of the web, chosen by likeness to known data sets, without labels",
        warning=_CURATED,
        megabytes=88,
        per_second=12,
        pixels=518,
        patch=14,
        revision="4610ca143709d58a633b6397a74412c2c3842454",
    ),
    Encoder(
        "dinov2-vitb14",
        "images",
        "timm:vit_base_patch14_dinov2.lvd142m",
        width=768,
        licence="apache-2.0",
        trained_on="142 million images of the web, chosen by likeness to known data sets, without labels",
        warning=_CURATED,
        megabytes=346,
        per_second=4,
        pixels=518,
        patch=14,
    ),
    Encoder(
        "siglip2-vitb16",
        "images",
        "timm:vit_base_patch16_siglip_224.v2_webli",
        width=768,
        licence="apache-2.0",
        trained_on="10 billion images of the web with their texts",
        warning=_WEB,
        megabytes=372,
        per_second=5,
        pixels=224,
        patch=16,
    ),
    Encoder(
        "clip-vitb32",
        "images",
        "timm:vit_base_patch32_clip_224.openai",
        width=768,
        licence="apache-2.0",
        trained_on="400 million images of the web with their texts",
        warning=_WEB,
        megabytes=351,
        per_second=18,
        pixels=224,
        patch=32,
    ),
    Encoder(
        "all-MiniLM-L6-v2",
        "texts",
        "text:sentence-transformers/all-MiniLM-L6-v2",
        width=384,
        licence="apache-2.0",
        trained_on="1.2 billion pairs of English sentences",
        warning=_QUESTIONS,
        megabytes=92,
        per_second=330,
        measured=True,
        revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
    ),
    Encoder(
        "bge-small-en-v1.5",
        "texts",
        "text:BAAI/bge-small-en-v1.5",
        width=384,
        licence="mit",
        trained_on="pairs of English texts of the web, then labelled ones",
        warning=_QUESTIONS,
        megabytes=134,
        per_second=160,
        revision="5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
    ),
    Encoder(
        "e5-small-v2",
        "texts",
        "text:intfloat/e5-small-v2",
        width=384,
        licence="mit",
        trained_on="270 million pairs of English texts of the web, then labelled ones",
        warning=_QUESTIONS,
        megabytes=134,
        per_second=160,
        prefix="query: ",
        revision="ffb93f3bd4047442299a41ebb6fa998a38507c52",
    ),
    Encoder(
        "multilingual-e5-small",
        "texts",
        "text:intfloat/multilingual-e5-small",
        width=384,
        licence="mit",
        trained_on="1 billion pairs of texts in about 100 languages, then labelled ones",
        warning=_QUESTIONS,
        megabytes=493,
        per_second=150,
        prefix="query: ",
        revision="614241f622f53c4eeff9890bdc4f31cfecc418b3",
    ),
    Encoder(
        "static-retrieval-mrl-en-v1",
        "texts",
        "text:sentence-transformers/static-retrieval-mrl-en-v1",
        width=1024,
        licence="apache-2.0",
        trained_on="pairs of English questions and texts; a vector for each token, for slow machines",
        warning=_QUESTIONS,
        megabytes=126,
        per_second=20000,
        revision="f60985c706f192d45d218078e49e5a8b6f15283a",
    ),
)


def kind_of(name: str) -> EncoderKind:
    """The kind of what an encoder embeds, by its name or network."""
    entry = next((e for e in CATALOGUE if name.lower() in (e.name.lower(), e.network.lower())), None)
    if entry is not None:
        return entry.kind
    return "texts" if name.startswith(TEXT) else "images"


def encoder_named(name: str, kind: EncoderKind) -> Encoder:
    """The encoder of the catalogue of that name or network, or else of the network of that name.

    Raises:
        ValueError: if there is none, or it embeds something else.
    """
    entry = next((e for e in CATALOGUE if name.lower() in (e.name.lower(), e.network.lower())), None)
    if entry is None and name.startswith(TIMM):
        entry = _of_timm(name)
    elif entry is None and name.startswith(TORCHVISION):
        from trivet.models.backbones import check_backbone_name  # here: it loads torch

        check_backbone_name(name)
        entry = Encoder(name.removeprefix(TORCHVISION), "images", name)
    elif entry is None and is_reference(name):
        entry = Encoder(name, "images", name, width=_width(name))
    elif entry is None and name.startswith(TEXT):
        entry = Encoder(name.removeprefix(TEXT).rstrip("/").rpartition("/")[2], "texts", name)
    if entry is None:
        names = ", ".join(entry.name for entry in CATALOGUE if entry.kind == kind)
        other = "timm:NAME, torchvision:NAME, python:FILE.py:NAME" if kind == "images" else "text:NAME"
        raise ValueError(f"an encoder of {kind} must be one of {names}, {other}: got {name!r}.")
    if entry.kind != kind:
        raise ValueError(f"an encoder must take what the data are, {kind}: {name} embeds {entry.kind}; leave it out.")
    return entry


def _of_timm(name: str) -> Encoder:
    """The encoder of a network of timm by what timm knows of it."""
    import timm  # here: it takes seconds to load

    from trivet.models.backbones import check_backbone_name

    check_backbone_name(name)
    try:
        cfg = timm.get_pretrained_cfg(name.removeprefix(TIMM))
    except RuntimeError as error:  # of weights it does not know
        listed = timm.list_pretrained(name.removeprefix(TIMM).partition(".")[0])
        raise ValueError(f"{str(error).rstrip('.')}; timm has {', '.join(listed) or 'none'}.") from None
    if cfg is not None and cfg.tag and "." not in name:
        name = f"{name}.{cfg.tag}"
    entry = next((entry for entry in CATALOGUE if entry.network == name), None)
    if entry is not None:
        return entry
    if cfg is None or not cfg.has_weights:
        raise ValueError(
            f"how an encoder's images are prepared must be known: timm has no weights of {name}, so no mean and "
            "deviation of colours; give a folder that timm saved, whose config.json has them."
        )
    return Encoder(name.removeprefix(TIMM), "images", name, licence=cfg.license or "", pixels=cfg.input_size[-1])


def _width(reference: str) -> int:
    """The numbers of a vector of a network outside Trivet, as its class has them as default.

    Raises:
        ValueError: if it cannot be imported, or has no default.
    """
    known = inspect.signature(python_object(reference, kind="models")).parameters.get("embedding_dim")
    if known is None or not isinstance(known.default, int):
        raise ValueError(
            f"an encoder must say how many numbers its vectors have: embedding_dim of {reference} has no default; "
            "write embedding_dim: int = N in its constructor."
        )
    return known.default
