"""The certificate as a file: it comes back as it was, holds no NaN, and no other file is taken for one."""

import dataclasses
import json
import math
import os

import numpy as np
import pytest

from ppl_tunnels.verification import certificate as module
from ppl_tunnels.verification.certificate import EXIT_STATUS, Certificate, content_hash, load_certificate
from ppl_tunnels.verification.claims import Claim, Position
from ppl_tunnels.verification.invariants import Invariant
from ppl_tunnels.verification.ladder import Rung


@pytest.fixture
def certificate():
    claim = Claim(
        "kl_bits", "KL", "the mean of …", 0.1, 0.05, 0.2, 0.01, "bits", 14.8, "why", 0.3, 100, 1e-9, True, "failed"
    )
    return Certificate(
        verdict="refuted",
        claim="Weights fixed … KL(oracle ‖ floored predictor)",
        reasons=("not finite: episode 3, step 2 of 5",),
        tolerance_bits=0.01,
        confidence=0.99,
        episodes=100,
        tunnel={"name": "coin", "configuration": {"length": 5, "grid": (0.1, 0.9)}, "episode_bits": math.inf},
        predictor={"name": "<lambda>", "targets": None, "training": {"steps": np.int64(7), "rate": np.float32(0.5)}},
        claims=(claim,),
        positions=(Position(2, 0.1, 0.05, math.inf, 1.0, 0.9, 0.1, 1e-9, "failed"),),
        invariants=(Invariant("finite", "…", False, math.inf, "episode 3, step 2 of 5"),),
        ladder=(Rung("prior", "…", 0.3, True, 0.1, 0.2, False, True),),
        vacuous=np.bool_(False),
        oracle={"engine": "enumeration", "check": []},
        keys={"certification_seed": 2**63 - 1},
        versions={"python": "3.13"},
        platform="cpu",
        precision="float64",
        seconds=1.5,
        created="2026-01-01T00:00:00Z",
    )


@pytest.fixture
def saved(certificate, tmp_path):
    path = tmp_path / "deep" / "down" / "certificate.json"
    certificate.save(path)
    return path


def edited(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def test_it_comes_back_as_it_was(certificate, saved):
    content = load_certificate(saved)
    assert content == certificate.to_json()
    assert set(content) == {field.name for field in dataclasses.fields(Certificate)} | {"content_hash"}
    assert content["claims"][0]["estimate"] == 0.1
    assert content["keys"]["certification_seed"] == 2**63 - 1
    assert content["tunnel"]["configuration"]["grid"] == [0.1, 0.9]
    assert content["predictor"]["training"] == {"steps": 7, "rate": 0.5}
    assert content["claim"] == certificate.claim  # not escaped away


def test_what_is_unbounded_is_null_and_nothing_is_nan(certificate, saved):
    def refuse(constant):
        raise AssertionError(constant)

    content = json.loads(saved.read_text(), parse_constant=refuse)
    assert content["tunnel"]["episode_bits"] is None
    assert content["positions"][0]["kl_upper"] is None
    assert content["invariants"][0]["worst"] is None
    for bad in (math.nan, np.float64("nan"), np.float32("nan")):
        with pytest.raises(ValueError, match="cannot hold NaN"):
            dataclasses.replace(certificate, seconds=bad).to_json()


def test_every_field_is_under_the_hash(saved):
    original = json.loads(saved.read_text())
    fields = [name for name in original if name not in ("content_hash", "schema")]
    assert len(fields) >= 20
    for name in fields:
        changed = {**original, name: "something else"}
        assert content_hash(changed) != original["content_hash"]
        saved.write_text(json.dumps(changed))
        with pytest.raises(
            ValueError, match="does not match its content_hash: a field was changed after it was written"
        ):
            load_certificate(saved)
    saved.write_text(json.dumps(original, indent=7, sort_keys=True))  # how it is laid out does not matter
    assert load_certificate(saved) == original


def test_a_change_deep_inside_is_caught(saved):
    def nudge(content):
        content["claims"][0]["upper"] = math.nextafter(content["claims"][0]["upper"], 0)

    with pytest.raises(ValueError, match="does not match its content_hash"):
        load_certificate(edited(saved, nudge))


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "not a JSON file, or is truncated"),
        ("{", "not a JSON file, or is truncated"),
        ("no JSON at all", "not a JSON file, or is truncated"),
        ("[]", "has schema 'list'; expected 'ppl_tunnels.certificate/1'"),
        ("7", "has schema 'int'"),
        ("{}", "has schema None"),
        ('{"schema": "ppl_tunnels.certificate/0"}', "has schema 'ppl_tunnels.certificate/0'"),
        ('{"schema": "ppl_tunnels.certificate/1"}', "lacks the field 'verdict'"),
        ('{"schema": "ppl_tunnels.certificate/1", "seconds": NaN}', "holds NaN"),
        ('{"schema": "ppl_tunnels.certificate/1", "seconds": -Infinity}', "holds -Infinity"),
    ],
)
def test_what_is_no_certificate_is_refused_with_the_reason(tmp_path, text, reason):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        load_certificate(path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)


def test_cut_anywhere_it_is_refused(saved):
    whole = saved.read_bytes().rstrip()
    for end in np.linspace(0, len(whole) - 1, 40).astype(int):
        saved.write_bytes(whole[:end])
        with pytest.raises(ValueError, match="truncated"):
            load_certificate(saved)
    saved.write_bytes(b"\xff\xfe" + whole)
    with pytest.raises(ValueError, match="not a JSON file"):
        load_certificate(saved)


def test_a_missing_field_is_named(saved):
    with pytest.raises(ValueError, match="lacks the field 'ladder'"):
        load_certificate(edited(saved, lambda content: content.pop("ladder")))


def test_a_missing_file_is_named(tmp_path):
    for place in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ValueError, match="there is no file"):
            load_certificate(place)


@pytest.mark.parametrize("at", ["write_text", "replace"])
def test_what_goes_wrong_while_saving_leaves_the_old_file_and_nothing_else(certificate, saved, monkeypatch, at):
    before = saved.read_bytes()

    def fails(*args, **kwargs):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(*((module.Path, "write_text") if at == "write_text" else (os, "replace")), fails)
        with pytest.raises(OSError, match="disk full"):
            dataclasses.replace(certificate, verdict="certified").save(saved)
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]
    dataclasses.replace(certificate, verdict="certified").save(saved)
    assert load_certificate(saved)["verdict"] == "certified"
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]


def test_in_words_and_as_an_exit_status(certificate):
    assert str(certificate).splitlines() == [f"REFUTED: {certificate.claim}", "  - not finite: episode 3, step 2 of 5"]
    found = {verdict: dataclasses.replace(certificate, verdict=verdict).exit_status for verdict in EXIT_STATUS}
    assert found == {"certified": 0, "refuted": 1, "undecided": 3}
