"""docs/reference/hybrid.md, held to the code and to these tests."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any, get_args

from whence.hybrid import CuratedMemory, HybridMemory, MemoryConfig, MemoryTool, Run
from whence.hybrid.audit import EventName
from whence.hybrid.client import Category
from whence.hybrid.reference import CLOSING, LABEL, OPENING, Result

HERE = Path(__file__).parent
PAGE = (HERE.parent.parent / "docs" / "reference" / "hybrid.md").read_text()


def names_of_tests() -> set[str]:
    return {
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_test_that_the_page_names_is_there() -> None:
    listed = re.findall(r"\| `(test_\w+)` \|", PAGE)
    assert len(listed) == len(set(listed)) == 7 + 4 + 5 + 11 + 6
    assert set(listed) <= names_of_tests()


def test_every_event_category_and_field_is_on_the_page() -> None:
    for name in (*get_args(EventName), *get_args(Category)):
        assert f"| `{name}` |" in PAGE, name
    for name in (*Result.__struct_fields__, *MemoryTool.parameters["properties"], LABEL, OPENING, CLOSING):
        assert name in PAGE, name


def test_every_call_is_on_the_page_with_its_arguments() -> None:
    calls: list[tuple[str, Any]] = [
        ("HybridMemory", HybridMemory),
        ("memory.before_run", HybridMemory.before_run),
        ("run.system", Run.system),
        ("run.messages", Run.messages),
        ("run.complete", Run.complete),
        ("add", CuratedMemory.add),
        ("replace", CuratedMemory.replace),
        ("remove", CuratedMemory.remove),
        ("read", CuratedMemory.read),
        ("snapshot", CuratedMemory.snapshot),
        ("MemoryConfig.parse", MemoryConfig.parse),
        ("MemoryConfig.from_file", MemoryConfig.from_file),
    ]
    for name, call in calls:
        parameters = [each for each in inspect.signature(call).parameters.values() if each.name != "self"]
        written = ", ".join(each.name + ("" if each.default is each.empty else "?") for each in parameters)
        assert f"{name}({written})`" in PAGE, name
