"""The lines of Python on a model card that use what was exported, without Trivet where it can be had."""

from __future__ import annotations

from trivet.commands.export.record import Preparation

IMAGES = """def pixels(file):
    image = Image.open(file)
    image.draft("RGB", ({draft}, {draft}))  # of a JPEG, decode no more than is needed
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = ImageOps.fit(image.convert("{colours}"), ({wide}, {high}), method=Image.Resampling.BICUBIC)
    image = image.crop(({left}, {top}, {right}, {bottom}))
    return np.asarray(image, np.float32).reshape({height}, {width}, {channels}).transpose(2, 0, 1) / 255


images = np.stack([pixels("photo.jpg")])"""
TEXTS = """tokenizer = Tokenizer.from_file("{tokenizer}")
tokenizer.enable_truncation({max_tokens})
tokenizer.enable_padding(pad_id={padding_id})
encoded = tokenizer.encode_batch([{prefix!r} + text for text in ["a text", "another one"]])
input_ids = np.array([one.ids for one in encoded], np.int64)
attention_mask = np.array([one.attention_mask for one in encoded], np.int64)"""
OTHERS = """{name} = np.zeros(({batch}), np.float32)  # yours, as in training"""
ONNX = """session = onnxruntime.InferenceSession("model.onnx")
(embeddings,) = session.run(None, {{{feed}}})
"""
TORCH = """network = torch.export.load("model.pt2").module()
embeddings = network({feed}).numpy()
"""
LOADED = """from trivet.models import load_model

embeddings = load_model("FOLDER").embed({items})
"""
SENTENCES = """from sentence_transformers import SentenceTransformer

embeddings = SentenceTransformer("FOLDER").encode(["a text", "another one"])
"""
LIBRARIES = {"timm": " timm", "torchvision": " torchvision", "text": " transformers"}
READERS = {  # kind -> what more is installed, and imported
    "images": (" pillow", "from PIL import Image, ImageOps\n\n\n"),
    "texts": (" tokenizers", "from tokenizers import Tokenizer\n\n"),
    "vectors": ("", "\n"),
    "inputs": ("", "\n"),
}
ITEMS = {"images": '["photo.jpg"]', "texts": '["a text", "another one"]', "vectors": "vectors"}


def snippet(preparation: Preparation, network: str) -> str:
    """Markdown: what is needed, and a program; the network by its name in the settings."""
    to, kind, names = preparation.form, preparation.kind, list(preparation.inputs)
    if to == "safetensors":
        more = LIBRARIES.get(network.partition(":")[0], "")
        return _block(f"pip install 'trivet[use]'{more}", LOADED.format(items=ITEMS.get(kind, "inputs")))
    if to == "sentence-transformers":
        return _block("pip install sentence-transformers", SENTENCES)
    if to == "onnx":
        library, last = "onnxruntime", ONNX.format(feed=", ".join(f'"{name}": {name}' for name in names))
    else:
        library, last = "torch", TORCH.format(feed=", ".join(f"torch.from_numpy({name})" for name in names))
    first = {"images": _images, "texts": _texts}.get(kind, _others)(preparation)
    more, imported = READERS[kind]
    code = f"import numpy as np\nimport {library}\n{imported}{first}\n\n{last}"
    lines = _block(f"pip install numpy {library}{more}", code)
    return f"{lines}\n\nWhat happens before the network is in `preprocessing.json`, too."


def _images(preparation: Preparation) -> str:
    (high, wide), (height, width) = preparation.resize_to_cover, preparation.centre_crop
    top, left = (high - height) // 2, (wide - width) // 2
    return IMAGES.format(
        draft=2 * max(high, wide),
        colours=preparation.colours,
        channels=3 if preparation.colours == "RGB" else 1,
        high=high,
        wide=wide,
        left=left,
        top=top,
        right=left + width,
        bottom=top + height,
        height=height,
        width=width,
    )


def _texts(preparation: Preparation) -> str:
    return TEXTS.format_map(dict(preparation))


def _others(preparation: Preparation) -> str:
    ((name, description),) = preparation.inputs.items()
    return OTHERS.format(
        name=name, batch=description[description.index("(") + 1 : description.index(")")].replace("batch", "2")
    )


def _block(needs: str, code: str) -> str:
    return f"After `{needs}`:\n\n```python\n{code.rstrip()}\n```"
