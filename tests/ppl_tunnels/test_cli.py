"""The command line as a person meets it: verbs, exit statuses, and one sentence for what was given wrongly."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppl_tunnels.cli import main

PROGRAM = '''
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from ppl_tunnels import wind_tunnel

@wind_tunnel(stream="ball")
def little_urn(length=4, colours=3):
    """An urn of few colours."""
    urn = numpyro.sample("urn", dist.Categorical(jnp.ones(colours) / colours))
    with numpyro.plate("draws", length):
        numpyro.sample("ball", dist.Categorical(jnp.where(jnp.arange(colours) == urn, 0.8, 0.2 / (colours - 1))))

def exact(episodes):
    return little_urn.oracle().predictive(episodes)

def constant(episodes):
    import numpy as np
    return np.full((len(episodes), 4, 3), 1 / 3)

number = 3
'''


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "urn.py"
    path.write_text(PROGRAM)
    return str(path)


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["ppl-tunnels", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_help_answers_fast_and_list_names_the_tunnels() -> None:
    """Help must not import JAX; the half second allows for a slow machine."""
    started = time.monotonic()
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ppl_tunnels", "--help"], capture_output=True, text=True, check=True
    )
    assert time.monotonic() - started < 5
    assert "jax" not in shown.stderr.replace("ppl_tunnels", "")
    for verb in ("list", "show", "check", "train", "certify", "run"):
        assert verb in shown.stdout


def test_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    status, out, _ = call(monkeypatch, capsys, "list", "--json")
    assert status == 0
    assert {"coin", "bijection"} <= set(json.loads(out))


def test_show_a_program_outside_the_repository(monkeypatch, capsys, program) -> None:
    status, out, _ = call(monkeypatch, capsys, "show", f"{program}:little_urn", "-s", "length=3")
    assert status == 0
    for word in (
        "urn",
        "latent",
        "ball",
        "stream, predicted",
        "length=3",
        "memoryless",
        "label-permuted",
        "for each of 3 values",
    ):
        assert word in out, word


def test_show_a_tunnel_of_densities(monkeypatch, capsys) -> None:
    """Means and spreads instead of probabilities, and the ladder of densities."""
    status, out, _ = call(monkeypatch, capsys, "show", "kalman", "-s", "length=4")
    assert status == 0
    assert "reading" in out and "memoryless" in out and "Normal" in out, out


def test_show_what_a_model_reads(monkeypatch, capsys) -> None:
    words = ["show", "bijection", "--preset", "small", "--set", "length=2", "--encoding"]
    status, out, _ = call(monkeypatch, capsys, *words)
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert status == 0 and out.startswith("16 tokens, 3 positions, 0 real features.")
    assert ["8", "…", "15", "value", "=", "0", "…", "value", "=", "7"] in lines
    assert [line[-1] for line in lines[-3:] if line[-4:-1] == ["value", "of", "step"]] == ["1", "2"]


def test_another_site_is_predicted(monkeypatch, capsys) -> None:
    """The keys of a bijection are predicted by what is left of them; the ladder then has nothing that evidence changes."""
    status, out, _ = call(
        monkeypatch, capsys, "show", "bijection", "-s", "size=3", "-s", "length=2", "--predict", "key"
    )
    assert status == 0
    assert "stream, predicted" in next(line for line in out.splitlines() if line.startswith("key"))
    assert "Within 0.001 bits of Bayes: " in out and "A trivial agent among them" in out


def test_check_passes_and_fails_by_exit_status(monkeypatch, capsys, program) -> None:
    status, out, _ = call(monkeypatch, capsys, "check", f"{program}:little_urn", "--json", "--rounds", "1")
    findings = json.loads(out)
    assert status == 0
    assert all(finding["passed"] and finding["cases"] > 0 for finding in findings)


@pytest.mark.parametrize(
    ("function", "status", "verdict"),
    [("exact", 0, "certified"), ("constant", 1, "refuted"), ("exact", 3, "undecided")],
)
def test_certify_a_function_in_a_file(monkeypatch, capsys, program, tmp_path, function, status, verdict) -> None:
    episodes = "100" if verdict == "undecided" else "2500"
    words = [f"{program}:{function}", f"{program}:little_urn", "--tolerance", "0.05", "--episodes", episodes]
    found, out, _ = call(monkeypatch, capsys, "certify", *words, "-o", str(tmp_path / "out"))
    assert found == status, out
    assert verdict.upper() in out
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["verdict"] == verdict
    assert verdict.capitalize() in (tmp_path / "out" / "report.html").read_text()
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_train_then_certify_from_the_folder_alone(monkeypatch, capsys, program, tmp_path) -> None:
    folder = str(tmp_path / "model")
    status, out, _ = call(
        monkeypatch, capsys, "train", f"{program}:little_urn", "-o", folder, "--steps", "100", "--batch", "16"
    )
    assert status == 0, out
    status, out, _ = call(monkeypatch, capsys, "certify", folder, "--tolerance", "0.2", "--episodes", "2048", "--json")
    certificate = json.loads(out)
    assert certificate["predictor"]["targets"] == "oracle"
    assert certificate["tunnel"]["name"] == "little_urn"
    assert status == {"certified": 0, "refuted": 1, "undecided": 3}[certificate["verdict"]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["show", "coinn"], "did you mean 'coin'"),
        (["show", "nowhere.py:coin"], "there is no file"),
        (["show", "FILE"], "names a file but no tunnel"),
        (["show", "FILE:little_run"], "did you mean 'little_urn'"),
        (["show", "FILE:number"], "not a tunnel"),
        (["show", "coin", "-s", "lenght=3"], "did you mean 'length'"),
        (["show", "coin", "-s", "length"], "NAME=VALUE"),
        (["show", "coin", "-s", "length=2", "-s", "length=3"], "twice"),
        (["check", "bijection", "-s", "size=4"], "distinct"),
        (["show", "bijection", "--preset", "papers"], "did you mean 'paper'"),
        (["show", "bijection", "--predict", "vlaue"], "did you mean 'value'"),
        (["show", "bijection", "--layout", "published"], "it names none; give a Layout"),
        (["show", "bijection", "--features", "keys"], "did you mean 'key'"),
        (["certify", "nofolder"], "no folder"),
        (["certify", "FILE:missing", "coin"], "no function"),
        (["certify", "FILE:exact"], "name it"),
        (["certify", "FILE:exact", "FILE:little_urn", "--tolerance", "0"], "tolerance_bits is 0"),
        (["certify", "FILE:exact", "FILE:little_urn", "--confidence", "1.5"], "confidence is 1.5"),
        (["certify", "FILE:exact", "FILE:little_urn", "--episodes", "0"], "episodes is 0"),
        (["certify", "FILE:constant", "FILE:little_urn", "-s", "length=5"], "expected (64, 5, 3)"),
        (["run", "coin", "--model", "transfromer"], "transformer"),
        (["run", "coin", "--steps", "0"], "steps"),
        (["train", "regression", "-o", "out"], "predicted site 'y' is not finite"),
        (["run", "regression"], "predicted site 'y' is not finite"),
    ],
)
def test_what_was_given_wrongly_gets_one_sentence(monkeypatch, capsys, program, tmp_path, words, expected) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = call(monkeypatch, capsys, *(word.replace("FILE", program) for word in words))
    assert status == 2, out + err
    assert expected in err
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) in (["urn.py"], ["__pycache__", "urn.py"])


def test_ctrl_c_says_so(monkeypatch, capsys) -> None:
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ppl_tunnels.registry.load_tunnel", interrupted)
    status, _, err = call(monkeypatch, capsys, "show", "coin")
    assert status == 130
    assert "interrupted" in err and "Traceback" not in err


def test_a_folder_that_cannot_be_written_is_named_before_the_work(monkeypatch, capsys, program, tmp_path) -> None:
    (tmp_path / "file").touch()
    words = [f"{program}:exact", f"{program}:little_urn", "-o", str(tmp_path / "file" / "out")]
    status, out, err = call(monkeypatch, capsys, "certify", *words)
    assert status == 2
    assert "cannot read or write" in err and str(tmp_path / "file") in err
    assert "CERTIFIED" not in out


CHAIN = '''
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from ppl_tunnels import wind_tunnel

@wind_tunnel(stream="reading")
def thermometer(length=5):
    """A warm or cold room behind a noisy thermometer."""
    def hour(warm, _):
        numpyro.sample("reading", dist.Normal(jnp.array([-1.0, 1.0])[warm], 1.0))
        return numpyro.sample("warm", dist.Bernoulli(jnp.array([0.2, 0.9])[warm])), None
    scan(hour, numpyro.sample("first", dist.Bernoulli(0.5)), None, length=length)
'''


def test_show_why_lists_every_engine_and_what_failed(tmp_path, monkeypatch, capsys) -> None:
    """For a program outside the repository, with a continuous stream."""
    path = tmp_path / "room.py"
    path.write_text(CHAIN)
    status, out, _ = call(monkeypatch, capsys, "show", f"{path}:thermometer", "--why")
    words = " ".join(out.split())
    assert status == 0
    assert "filtering" in words and "enumeration" in words and "joint Gaussian" in words
    assert "wind_tunnel(closed_form=" in words
    assert "filtering applies: chosen" in words and "enumeration applies, too" in words
    assert "Kalman every latent is finite" in words
