"""Options and fixtures of all tests."""
from typing import Iterator

import pytest

import parray as pa
from golden import golden

__all__ = ["golden"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` writes the golden texts anew."""
    parser.addoption("--update-golden", action="store_true", help="write the golden texts anew")


BACKENDS = ["interp", "cpu"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on every backend: what it calls inside goes there."""
    with pa.use_backend(request.param):
        yield request.param


@pytest.fixture
def interpreter() -> Iterator[None]:
    """Run the test on the interpreter alone: it asks about tracing, and often."""
    with pa.use_backend("interp"):
        yield
