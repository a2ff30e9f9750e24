"""FitConfig: refuses what cannot be trained, and says what it is as plain data."""

import dataclasses
import json

import pytest

from ppl_tunnels.models import FitConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "transfomer"}, "no architecture 'transfomer'; did you mean 'transformer'"),
        ({"encoding": {"feature": ("x",)}}, "encoding holds 'feature', .* did you mean 'features'"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; expected one of muon, adamw"),
        ({"targets": "hard"}, "targets is 'hard'; expected one of oracle, sampled"),
        ({"steps": 0}, "steps is 0; expected an integer of at least 1"),
        ({"batch": 2.5}, r"batch is 2\.5; expected an integer"),
        ({"steps_per_call": True}, "steps_per_call is True; expected an integer"),
        ({"seed": -1}, "seed is -1; expected an integer from 0"),
        ({"seed": 2**63}, "expected an integer from 0"),
        ({"warmup": 1.0}, r"warmup is 1\.0; expected a share"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; expected a positive number"),
        ({"clip": 0.0}, r"clip is 0\.0; expected a positive number"),
        ({"weight_decay": -0.1}, r"weight_decay is -0\.1; expected zero or a positive number"),
    ],
)
def test_what_cannot_be_trained_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        FitConfig(**fields)


def test_each_optimiser_has_its_own_default_rate():
    assert FitConfig().peak_learning_rate == 0.02
    assert dataclasses.replace(FitConfig(), optimizer="adamw").peak_learning_rate == 0.01
    assert FitConfig(optimizer="adamw", learning_rate=0.5).peak_learning_rate == 0.5


def test_facts_are_plain_and_complete():
    config = FitConfig(options={"layers": 2})
    facts = json.loads(json.dumps(config.facts(), allow_nan=False))
    assert facts == {**dataclasses.asdict(config), "learning_rate": 0.02}


def test_configurations_compare_by_value_and_do_not_share_options():
    options = {"layers": 2}
    config = FitConfig(options=options)
    options["layers"] = 3
    assert config == FitConfig(options={"layers": 2}) != FitConfig(options={"layers": 3})
    assert hash(config) == hash(FitConfig(options={"layers": 2}))
