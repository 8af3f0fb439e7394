"""Documents for microgpt: where names come from, and how a document becomes tokens.

    "ann"  ->  [BOS, 0, 13, 13, BOS]             with the alphabet a-z, where BOS is 26

A document of n + 1 tokens has n positions, each predicting the next token; one longer than the context is cut.
"""
from __future__ import annotations

import importlib.util
import string
from pathlib import Path
from typing import Sequence, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models import MissingExtra

Documents: TypeAlias = "Sequence[str] | Sequence[Sequence[int]]"
Tokens: TypeAlias = "NDArray[np.int64]"


# --- where they come from --------------------------------------------------------------------------------------------

def shipped_names(seed: int) -> list[str]:
    """The 5,163 first names that the package ``names`` ships (US census of 1990), in an order fixed by ``seed``.

    They are read by path: importing the package is not needed to read two text files.
    """
    spec = importlib.util.find_spec("names")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise MissingExtra("the default documents come from the package names: pip install 'parray[models]' "
                           "(or pip install names), or give --names FILE", name="names")
    lines = [line for part in ("dist.male.first", "dist.female.first")
             for line in (Path(folders[0]) / part).read_text(encoding="ascii").splitlines()]
    return shuffled(list(dict.fromkeys(line.split()[0].lower() for line in lines if line.strip())), seed)


def names_in(path: str | Path, seed: int) -> list[str]:
    """The documents of a text file, one a line, in an order fixed by ``seed``; blank lines are left out."""
    docs = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not docs:
        raise ValueError(f"{path} holds no names: one is expected on each line")
    return shuffled(docs, seed)


def shuffled(docs: Sequence[str], seed: int) -> list[str]:
    """The documents in an order fixed by ``seed``."""
    return [docs[i] for i in np.random.default_rng(seed).permutation(len(docs))]


# --- characters and tokens -------------------------------------------------------------------------------------------

def alphabet_of(docs: Documents, size: int | None = None) -> str | None:
    """The characters of the documents, sorted; None for documents that are tokens already.

    ``size`` is what the model's weights expect.  A few documents need not use every letter, so where the weights
    have 26 characters and the documents use only some of a-z, the alphabet is a-z.
    """
    texts = [d for d in docs if isinstance(d, str)]
    if not texts:
        return None
    letters = "".join(sorted(set("".join(texts))))
    if size in (None, len(letters)):
        return letters
    if size == 26 and set(letters) <= set(string.ascii_lowercase):
        return string.ascii_lowercase
    raise ValueError(f"the weights are for {size} characters and BOS, but the documents use {len(letters)}: "
                     f"{letters!r}; pass the alphabet the weights were trained with")


def encode(docs: Documents, alphabet: str | None, context: int, bos: int) -> list[Tokens]:
    """Each document as tokens between two BOS, cut so that at most ``context`` positions predict.

    A list of tokens that has its BOS on both sides already is left as it is.
    """
    ids = {c: i for i, c in enumerate(alphabet or "")}
    return [_encode_one(doc, ids, context, bos) for doc in docs]


def _encode_one(doc: str | Sequence[int], ids: dict[str, int], context: int, bos: int) -> Tokens:
    unknown = [c for c in doc if c not in ids] if isinstance(doc, str) else []
    if unknown:
        raise ValueError(f"document {doc!r} has {unknown[0]!r}, which is not in the alphabet {''.join(ids)!r}")
    inner = [ids[c] for c in doc] if isinstance(doc, str) else [int(t) for t in doc]
    if inner and max(inner) > bos or min(inner, default=0) < 0:
        raise ValueError(f"document {doc!r} has tokens outside 0..{bos} (the last is BOS)")
    whole = inner if len(inner) > 1 and inner[0] == bos == inner[-1] else [bos, *inner, bos]
    return np.array(whole[:context + 1], dtype=np.int64)


def batch_of(docs: Sequence[Tokens], step: int, size: int, bos: int) -> tuple[Tokens, Tokens]:
    """The documents of one step, padded with BOS to the longest among them, and how many positions each has."""
    chosen = [docs[(step * size + j) % len(docs)] for j in range(size)]
    tokens = np.full((size, max(map(len, chosen))), bos, dtype=np.int64)
    for row, doc in zip(tokens, chosen, strict=True):
        row[:len(doc)] = doc
    return tokens, np.array([len(doc) - 1 for doc in chosen], dtype=np.int64)
