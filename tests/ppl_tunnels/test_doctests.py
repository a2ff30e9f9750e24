"""Every example in a docstring runs and shows what it says, and every public module has a docstring."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"ppl_tunnels": "ppl_tunnels", "models": "ppl_tunnels.models", "verification": "ppl_tunnels.verification"}


def modules():
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if parts[-1] != "__main__":
                yield ".".join((package, *(part for part in parts if part != "__init__"))), path


MODULES = dict(modules())
WITH_EXAMPLES = [name for name, path in MODULES.items() if ">>>" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name):
    """Would catch documentation that is no longer true."""
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0, "the examples are not where doctest finds them"
    assert results.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_modules_say_what_they_are(name):
    """Would catch a file whose idea one has to guess."""
    text = ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8"))) or ""
    assert len(text) > 20 and "placeholder" not in text
