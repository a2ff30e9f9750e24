"""A small tunnel and one short training run in it, shared by the tests of models."""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

import ppl_tunnels
from ppl_tunnels.models import FitConfig, FitResult, fit
from ppl_tunnels.tunnel import WindTunnel

SHORT = FitConfig(steps=150, batch=32, options={"width": 16}, steps_per_call=30)


@pytest.fixture(autouse=True, scope="module")
def fast_compilation() -> None:
    """Nothing is left out here: training runs what it compiles thousands of times."""


@pytest.fixture(scope="session")
def coin() -> WindTunnel:
    return ppl_tunnels.load_tunnel("coin").configure(length=5, points=5)


@pytest.fixture(scope="session")
def short_config() -> FitConfig:
    return SHORT


@pytest.fixture(scope="session")
def short_run(coin: WindTunnel) -> FitResult:
    return fit(coin, SHORT, progress=False)


@pytest.fixture
def mutate(request: pytest.FixtureRequest) -> Callable[[ModuleType, str, str], ModuleType]:
    """A copy of a module with one piece of its source replaced: a planted fault, in the code itself."""

    def mutant(module: ModuleType, old: str, new: str) -> ModuleType:
        source = inspect.getsource(module)
        assert source.count(old) == 1, (
            f"{old!r} occurs {source.count(old)} times in {module.__name__}; the fault is not planted"
        )
        name = f"{module.__name__}_mutant"
        spec = importlib.util.spec_from_loader(name, loader=None)
        assert spec is not None
        copy = importlib.util.module_from_spec(spec)
        sys.modules[name] = copy
        request.addfinalizer(lambda: sys.modules.pop(name))
        exec(compile(source.replace(old, new), name, "exec"), vars(copy))
        return copy

    return mutant
