"""Checkpoints: bit-identical, self-contained, whole or absent, and refused in one sentence when damaged."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.models import ModelPredictor, build, checkpoint, load_model, save_model

FACTS = {
    "name": "a model",
    "targets": "sampled",
    "training": {"steps": 3, "learning_rate": 0.5, "options": {}},
    "tunnel": {"name": "coin", "source": "ppl_tunnels.tunnels.coin:coin", "configuration": {"length": 5, "points": 5}},
}


@pytest.fixture(scope="module")
def predictor(coin) -> ModelPredictor:
    model = build("transformer", coin.encoding(), {"width": 16}, key=jax.random.key(0))
    return ModelPredictor(model, coin.encoding(), **FACTS)


@pytest.fixture(scope="module")
def other(coin) -> ModelPredictor:
    model = build("transformer", coin.encoding(), {"width": 16}, key=jax.random.key(1))
    return ModelPredictor(model, coin.encoding())


@pytest.fixture(scope="module")
def original(predictor, tmp_path_factory) -> Path:
    return save_model(predictor, tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def folder(original, tmp_path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "model"))


def edit(folder: Path, **fields) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_round_trip_is_bit_identical(coin, predictor, original):
    again = load_model(original)
    episodes = coin.sample(stream_key(0, Purpose.CHECK), 16)
    np.testing.assert_array_equal(again(episodes).log_probs, predictor(episodes).log_probs)
    assert again.fingerprint == predictor.fingerprint and again.encoding == predictor.encoding
    assert {name: getattr(again, name) for name in FACTS} == FACTS


def test_the_record_says_what_is_needed_to_use_and_judge_the_model(predictor, original):
    record = json.loads((original / "model.json").read_text())
    assert record["schema"] == checkpoint.SCHEMA
    assert record["architecture"] == "transformer"
    assert record["config"] == dataclasses.asdict(predictor.model.config)
    assert record["weights_sha256"] == predictor.weights_hash
    assert set(checkpoint.LIBRARIES) < set(record["versions"])


def test_a_fresh_process_needs_neither_tunnel_nor_oracle(coin, predictor, original, tmp_path):
    episodes = coin.sample(stream_key(0, Purpose.CHECK), 16).without_latents()
    np.save(tmp_path / "flips.npy", episodes.stream["flip"])
    code = """
import sys
import numpy as np
for name in ("ppl_tunnels.tunnel", "ppl_tunnels.tunnels", "ppl_tunnels.oracles.derive", "ppl_tunnels.oracles.oracle"):
    sys.modules[name] = None  # importing it is an error
from ppl_tunnels.episodes import Episodes
from ppl_tunnels.models import load_model
flips = np.load(sys.argv[2])
np.save(sys.argv[3], load_model(sys.argv[1])(Episodes(stream={"flip": flips})).log_probs)
"""
    files = [original, tmp_path / "flips.npy", tmp_path / "log_probs.npy"]
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code, *map(str, files)], check=True)
    np.testing.assert_array_equal(np.load(files[2]), predictor(episodes).log_probs)


def test_the_folder_of_a_run_stands_for_the_model_in_it(predictor, folder):
    assert load_model(folder.parent).fingerprint == predictor.fingerprint


def test_a_model_is_replaced_in_one_go(other, folder):
    save_model(other, folder)
    assert load_model(folder).fingerprint == other.fingerprint
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, OSError])
def test_an_interrupted_save_leaves_what_was_there(predictor, other, folder, monkeypatch, interrupt):
    def fail(*_):
        raise interrupt

    monkeypatch.setattr(checkpoint, "_write_weights", fail)
    with pytest.raises(interrupt):
        save_model(other, folder)
    with pytest.raises(interrupt):
        save_model(other, folder.parent / "new")
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert load_model(folder).fingerprint == predictor.fingerprint


def test_a_failed_rename_puts_the_old_model_back(predictor, other, folder, monkeypatch):
    rename = Path.rename

    def fail(self, target):
        if self.name == "new":
            raise OSError("disk full")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="disk full"):
        save_model(other, folder)
    assert load_model(folder).fingerprint == predictor.fingerprint


def test_something_else_is_never_overwritten(predictor, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("words")
    with pytest.raises(ValueError, match=r"thesis exists and is not a model folder"):
        save_model(predictor, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "words"


def test_facts_that_are_not_plain_data_are_refused_before_anything_is_written(predictor, tmp_path):
    bad = dataclasses.replace(predictor, training={"loss": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_model(bad, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_missing_and_foreign_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere; give the one that fit or save_model wrote"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is not a model folder \(no model\.json\)"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schema": 2}, "has schema 2 and this version reads 1"),
        ({"encoding": None}, "field 'encoding' is missing or not what it should be"),
        ({"targets": 3}, "field 'targets' is missing"),
        ({"architecture": "lstn"}, "does not describe a model: there is no architecture 'lstn'"),
        ({"config": {"vocabulary": 3}}, "does not describe a model: transformer: positions, outputs not given"),
        ({"encoding": {}}, "does not describe a model: this is not an encoding"),
        (
            {"weights_sha256": "0" * 64},
            "the configuration, encoding or hash of the weights changed since the model was saved",
        ),
        (
            {"fingerprint": "0" * 64},
            "the configuration, encoding or hash of the weights changed since the model was saved",
        ),
        ({"files": {"_METADATA": "0" * 64}}, "_METADATA: the file changed since the model was saved"),
        ({"files": {"more": "0" * 64}}, "weights/more is missing"),
    ],
)
def test_an_edited_record_is_refused_and_the_field_named(folder, fields, message):
    edit(folder, **fields)
    with pytest.raises(ValueError, match=message):
        load_model(folder)


@pytest.mark.parametrize(("field", "value"), [("heads", 4), ("activation", "swiglu"), ("width", 8)])
def test_an_edited_configuration_is_refused(folder, predictor, field, value):
    edit(folder, config={**dataclasses.asdict(predictor.model.config), field: value})
    with pytest.raises(
        ValueError, match="the configuration, encoding or hash of the weights changed since the model was saved"
    ):
        load_model(folder)


def test_a_truncated_record_is_refused(folder):
    path = folder / "model.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ValueError, match=r"model\.json is not JSON"):
        load_model(folder)


def test_weights_of_another_model_are_refused(folder, other, tmp_path):
    shutil.rmtree(folder / "weights")
    saved = save_model(other, tmp_path / "other")
    shutil.move(saved / "weights", folder / "weights")
    with pytest.raises(ValueError, match=r"weights/.* is missing|the file changed since the model was saved"):
        load_model(folder)
    # With the list of files exchanged as well, the numbers themselves are found to differ.
    edit(folder, files=json.loads((saved / "model.json").read_text())["files"])
    with pytest.raises(ValueError, match="the weights changed since the model was saved"):
        load_model(folder)


def test_every_missing_or_truncated_file_of_the_weights_is_named(folder):
    files = [path for path in sorted((folder / "weights").rglob("*")) if path.is_file()]
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError, match=rf"{path.name}: the file changed since the model was saved"):
            load_model(folder)
        path.unlink()
        with pytest.raises(ValueError, match=rf"{path.name} is missing; restore the folder or train again"):
            load_model(folder)
        path.write_bytes(content)
    assert len(files) > 3 and load_model(folder)


def test_an_unregistered_model_cannot_be_saved(coin, predictor, tmp_path):
    class Mine(type(predictor.model)):
        pass

    mine = Mine(predictor.model.config, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="Mine is not a registered architecture"):
        save_model(ModelPredictor(mine, coin.encoding()), tmp_path / "model")
