"""Golden texts: what a pass prints is kept in tests/golden/<file>/<test>.txt and compared.

``pytest --update-golden`` writes them anew; read the difference before keeping it.
"""
from __future__ import annotations

import re
from pathlib import Path
from typing import Callable

import pytest

FOLDER = Path(__file__).parent / "golden"
Golden = Callable[[str], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with the one kept for this test."""
    name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_")
    path = FOLDER / request.path.stem.removeprefix("test_") / f"{name}.txt"

    def compare(text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} does not exist; run pytest --update-golden"
        assert text == path.read_text(), f"differs from {path}"
    return compare
