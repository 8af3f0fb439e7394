"""Checkpoints: one safetensors file that holds groups of arrays and, as JSON, all else that training needs.

    params.wte ... params.mlp_fc2, m.wte ..., v.wte ...     the arrays
    "training" in the file's metadata                       {"step": 500, "config": {...}, "rng": {...}, ...} as JSON

A file is written beside its place and then moved there in one step: a reader sees the old one or the new one, whole.
"""
from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Mapping, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models import extra

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
KEY = "training"


def write_atomically(path: str | Path, data: bytes) -> None:
    """Put ``data`` at ``path``: all of it, or nothing if this is interrupted."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def save(path: str | Path, groups: Mapping[str, Arrays], metadata: Mapping[str, Any]) -> None:
    """Write a checkpoint: groups of arrays (``params``, ``m``, ``v``) and what JSON can say."""
    tensors = {f"{group}.{name}": np.ascontiguousarray(x) for group, arrays in groups.items()
               for name, x in arrays.items()}
    write_atomically(path, extra("safetensors.numpy").save(tensors, metadata={KEY: json.dumps(metadata)}))


def load(path: str | Path) -> tuple[dict[str, Arrays], dict[str, Any]]:
    """The groups of arrays and the metadata of a checkpoint."""
    extra("safetensors")
    from safetensors import SafetensorError, safe_open
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            metadata = file.metadata() or {}
            groups: dict[str, Arrays] = {}
            for name in file.keys():
                group, _, field = name.rpartition(".")
                groups.setdefault(group, {})[field] = file.get_tensor(name)
    except SafetensorError as e:
        raise ValueError(f"{path} is not a readable safetensors file: {e}") from None
    return groups, json.loads(metadata.get(KEY, "{}"))


def load_weights(path: str | Path) -> Arrays:
    """The weights of a checkpoint, or of any ``.npz`` or ``.safetensors`` file of arrays under the model's names."""
    if Path(path).suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays}
    groups, _ = load(path)
    return groups.get("params") or groups.get("", {})
