"""The README's Python runs as printed, and its commands are the ones that CI runs."""

import re
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_blocks_run_in_order_and_refute_the_predictor_that_is_not_bayes(
    tmp_path, monkeypatch, capsys
) -> None:
    file = tmp_path / "readme_blocks.py"
    file.write_text("\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL)), encoding="utf-8")
    module = types.ModuleType("readme_blocks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), module.__dict__)
    assert capsys.readouterr().out.startswith("REFUTED")


def test_ci_runs_the_readmes_test_command() -> None:
    command = "python3 -m pip install uv && python3 -m uv run pytest"
    assert command in README
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
