"""The documents: their examples run, their links lead somewhere."""
from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import parray as pa

ROOT = Path(__file__).parent.parent
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "models").glob("*/README.md")),
         ROOT / "examples" / "README.md"]


@pytest.mark.parametrize("page", [p for p in PAGES if ">>> " in p.read_text()], ids=lambda p: p.name)
@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_examples(page: Path, backend: str) -> None:
    with pa.use_backend(backend):
        failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert tried and not failed


def test_mistakes_of_newcomers_have_pages() -> None:
    """`errors.md` shows the whole text, with the user's line, of at least thirty errors; `test_examples` runs them."""
    text = (ROOT / "docs" / "errors.md").read_text()
    assert len(re.findall(r"^parray\.errors\.\w+: .*(?:\n    .*)*\n  at \.\.\.:\d+, in ", text, re.M)) >= 30


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_public_name_is_documented() -> None:
    """The language's page names everything that `parray` offers."""
    text = (ROOT / "docs" / "language.md").read_text()
    words = set(re.findall(r"\w+", text))
    assert not [n for n in pa.__all__ if n not in words | {"errors", "Parallel", "Tracer"}]
