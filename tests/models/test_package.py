"""The package: one import name, cheap to import, every public name resolvable."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import ppl_tunnels.models

FOLDER = Path(ppl_tunnels.models.__file__).parent


def test_importing_the_folder_under_a_bare_name_is_refused():
    spec = importlib.util.spec_from_file_location("models", FOLDER / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.raises(ImportError, match=r"imported as 'models'; write 'import ppl_tunnels\.models'"):
        spec.loader.exec_module(module)


def test_importing_the_package_loads_none_of_the_heavy_libraries():
    heavy = ["jax", "flax", "optax", "orbax", "numpyro", "rich"]
    code = f"import sys, ppl_tunnels.models; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_resolve_and_others_are_refused_with_the_list():
    for name in ppl_tunnels.models.__all__:
        assert getattr(ppl_tunnels.models, name) is not None
    assert set(ppl_tunnels.models.__all__) <= set(dir(ppl_tunnels.models))
    with pytest.raises(AttributeError, match="no attribute 'Transformers'; its public names are"):
        _ = ppl_tunnels.models.Transformers


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_models_import_nothing_of_verification(path):
    assert "ppl_tunnels.verification" not in path.read_text(encoding="utf-8")
