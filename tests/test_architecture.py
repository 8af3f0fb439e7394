"""The laws of the source tree: imports go one way, files stay short, everything public says what it is."""
import ast
from pathlib import Path
from typing import Iterator

import pytest

PACKAGE = Path(__file__).parent.parent / "parray"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 450

# A file may import only from files and folders that stand before its own.
ORDER = ["types", "errors", "ir", "prims", "builder", "soacs", "interpreter", "pretty", "check", "tree",
         "annotations", "record", "sizes", "program", "trace", "ad", "simplify", "contractions", "fuse",
         "interchange", "lockstep", "guards", "kernels", "lower", "memory", "cost", "cache", "backends", "pipeline",
         "api", "prelude", "array_api", "random", "printing", "testing", "__init__", "nn", "data", "cli",
         "__main__"]
LAZY = {("builder", "soacs")}                              # allowed the other way round, inside functions


def name_of(path: Path) -> str:
    """The unit of the order a file belongs to: its own name, or its folder's."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rank(unit: str) -> int:
    """Where a unit stands in the order."""
    assert unit in ORDER, f"{unit} is missing in ORDER"
    return ORDER.index(unit)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(node: ast.AST, lazy: bool = False) -> Iterator[tuple[str, bool, int]]:
    """(unit of the package, whether inside a function, line) for every import; those for annotations only left out."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ImportFrom(module="parray"):
                for alias in child.names:
                    own = (PACKAGE / alias.name).is_dir() or (PACKAGE / f"{alias.name}.py").exists()
                    yield (alias.name if own else "__init__"), lazy, child.lineno
            case ast.ImportFrom(module=str(module)) if module.startswith("parray."):
                yield module.split(".")[1], lazy, child.lineno
            case ast.ImportFrom(level=level) if level:
                raise AssertionError(f"line {child.lineno}: write imports in full")
            case ast.Import():
                for alias in child.names:
                    parts = alias.name.split(".")
                    if parts[0] == "parray":
                        yield (parts[1] if len(parts) > 1 else "__init__"), lazy, child.lineno
            case ast.If() if is_type_checking(child):
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from imports(child, True)
            case _:
                yield from imports(child, lazy)


def public_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The module's own functions and classes that others may use; the signatures of an overloaded one are no others."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if not any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list):
                yield node


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))


@each_file
def test_imports_go_one_way(path: Path) -> None:
    unit = name_of(path)
    for other, lazy, line in imports(parse(path)):
        if other == unit or lazy and (unit, other) in LAZY:
            continue
        assert rank(other) < rank(unit), f"{path}:{line}: {unit} may not import {other}, which stands after it"


@each_file
def test_file_is_short(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES, f"{path} has {lines} lines; split it by idea"


@each_file
def test_nothing_is_left_for_later(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX"):
            assert word not in line, f"{path}:{number} holds {word}"


@each_file
def test_everything_public_says_what_it_is(path: Path) -> None:
    tree = parse(path)
    assert ast.get_docstring(tree), f"{path} has no docstring"
    missing = [f"{node.name} (line {node.lineno})" for node in public_definitions(tree) if not ast.get_docstring(node)]
    assert not missing, f"{path}: no docstring: {', '.join(missing)}"


def test_order_names_only_what_exists() -> None:
    assert {name_of(p) for p in FILES} == set(ORDER)
