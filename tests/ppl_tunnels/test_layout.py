"""What lies where, and who imports whom."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ppl_tunnels", "models", "verification")
# The command line and what only it uses may import everything (lazily); the library below it may not.
COMMAND_LINE = {"cli.py", "__main__.py", "show.py", "loading.py", "settings.py", "progress.py"}


def imported(path: Path) -> set[str]:
    """Absolute names of all modules that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def offenders(paths, forbidden):
    return [
        (path.relative_to(ROOT).as_posix(), name)
        for path in paths
        for name in sorted(imported(path))
        if any(name == prefix or name.startswith(prefix + ".") for prefix in forbidden)
    ]


def test_imports_go_one_way():
    """Would catch a certificate that depends on our own models, or an oracle that depends on what it judges."""
    files = {folder: sorted((ROOT / folder).rglob("*.py")) for folder in FOLDERS}
    assert all(files.values())
    library = [
        path for path in files["ppl_tunnels"] if path.relative_to(ROOT / "ppl_tunnels").as_posix() not in COMMAND_LINE
    ]
    assert len(library) > 20
    bare = ["models", "verification", "tests"]
    assert offenders(library, ["ppl_tunnels.models", "ppl_tunnels.verification", *bare]) == []
    assert offenders(library, [f"ppl_tunnels.{name[:-3]}" for name in COMMAND_LINE]) == []
    assert offenders(files["verification"], ["ppl_tunnels.models", "ppl_tunnels.cli", "flax", "optax", *bare]) == []
    assert offenders(files["models"], ["ppl_tunnels.verification", "ppl_tunnels.cli", *bare]) == []
    tests = sorted((ROOT / "tests").rglob("*.py"))
    assert offenders(tests, ["models", "verification"]) == []


def test_the_referee_shares_no_code_with_the_engines():
    """Would catch a referee that repeats an engine's mistake because it calls it."""
    oracles = ROOT / "ppl_tunnels" / "oracles"
    for name in ("bruteforce", "joint_table"):
        used = {
            module.split(".")[2]
            for module in imported(oracles / f"{name}.py")
            if module.startswith("ppl_tunnels.oracles.")
        }
        assert used <= {"bruteforce"}, name


def test_the_package_list_is_the_folders():
    """Would catch a new folder that the wheel leaves out."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    found = set()
    for folder in FOLDERS:
        for init in (ROOT / folder).rglob("__init__.py"):
            relative = init.parent.relative_to(ROOT)
            found.add(".".join(relative.parts if folder == "ppl_tunnels" else ("ppl_tunnels", *relative.parts)))
    assert set(setuptools["packages"]) == found
    for package, folder in setuptools["package-dir"].items():
        assert (ROOT / folder / "__init__.py").is_file(), package
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        assert (path.parent / "__init__.py").is_file(), f"{path} lies in a folder that is no package"


def python(code: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


def test_importing_the_library_is_cheap():
    """Would catch an import at the top that drags in JAX, or makes an array before the caller has chosen a mode."""
    code = "import sys, ppl_tunnels; print([n for n in ('jax', 'numpyro', 'numpy', 'flax') if n in sys.modules], dir(ppl_tunnels))"
    run = python(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[] [") and "'load_tunnel'" in run.stdout


def test_loading_everything_creates_no_array():
    """Would catch a module-level constant on the device: it would be made in whichever mode the importer was in."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "ppl_tunnels").rglob("*.py"))
        if not path.name.startswith("__")
    ]
    run = python(
        f"import importlib, jax\nfor name in {modules!r}: importlib.import_module(name)\nprint(len(jax.live_arrays()))"
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "0"


@pytest.mark.parametrize("folder", ["models", "verification"])
def test_a_bare_name_is_refused_and_says_the_right_one(folder, tmp_path):
    """Would catch a second copy of every class, unequal to the first, when the repository root is on the path."""
    run = python(f"import {folder}")
    assert run.returncode != 0 and f"import ppl_tunnels.{folder}" in run.stderr
    run = python(f"import ppl_tunnels.{folder} as it; print(it.__name__)", cwd=tmp_path)
    assert run.stdout.strip() == f"ppl_tunnels.{folder}", run.stderr


def test_unknown_names_are_refused_with_the_public_ones():
    """Would catch a lazy lookup that turns a misspelling into an import error from inside."""
    import ppl_tunnels

    with pytest.raises(AttributeError, match="no attribute 'load_tunel'; its public names are .*load_tunnel"):
        _ = ppl_tunnels.load_tunel
    assert all(getattr(ppl_tunnels, name) is not None for name in ppl_tunnels.__all__)
