"""Print the exact versions that the project's own commands take, one a line."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
print("\n".join(project["tool"]["uv"]["constraint-dependencies"]))
