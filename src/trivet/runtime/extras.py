"""Libraries beyond torch, numpy and scipy: loaded where they are used; one that is missing is named with its extra."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

EXTRAS = {  # module -> extra; all others are of the extra `train`
    "sentence_transformers": "text",
    "transformers": "text",
    "tokenizers": "text",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
    "optuna": "sweep",
    "sqlalchemy": "sweep",
    "psycopg": "sweep",
    "tensorboard": "loggers",
    "mlflow": "loggers",
    "wandb": "loggers",
    "pandas": "",  # of no extra
}


def installed(*modules: str) -> bool:
    """Test whether all of the modules can be imported."""
    return all(find_spec(module) is not None for module in modules)


def load(module: str) -> Any:
    """A module of an extra.

    Raises:
        ModuleNotFoundError: if it is not installed; the sentence names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(error.name or module), name=error.name) from None


def missing(module: str) -> str:
    """The sentence for a module that is not installed."""
    library = module.partition(".")[0]
    extra = EXTRAS.get(library, "train")
    package = f"'trivet[{extra}]'" if extra else library
    return f"this needs {library}, which is not installed: run pip install {package}."
