"""The metrics log: whole lines of JSON, no NaN, and a bar that says loss, irreducible loss and KL."""

import io
import json

import pytest
from rich.console import Console

from ppl_tunnels.models import metrics
from ppl_tunnels.models.metrics import MetricsLog, TrainingMetrics

ROW = TrainingMetrics(step=50, loss_bits=3.5, irreducible_bits=3.25, kl_bits=0.25, learning_rate=0.01, seconds=1.5)


def test_rows_become_lines_of_json_and_replace_those_of_an_earlier_run(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    path.write_text("left over\n")
    with MetricsLog(path, steps=100, show=False) as log:
        log.write(ROW)
        assert path.read_text().endswith("}\n")  # there at once, not only at the end
        log.write(ROW)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 50, "loss_bits": 3.5, "irreducible_bits": 3.25, "kl_bits": 0.25, "learning_rate": 0.01, "seconds": 1.5}
    ] * 2


def test_nan_is_not_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"), MetricsLog(path, steps=100, show=False) as log:
        log.write(TrainingMetrics(50, float("nan"), 0.0, 0.0, 0.0, 0.0))
    assert path.read_text() == ""


def test_the_bar_shows_compile_time_apart_and_the_three_numbers(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(metrics, "Console", lambda **_: Console(file=screen, force_terminal=True, width=160))
    with MetricsLog(None, steps=100, show=True) as log:
        log.compiled(4.25)
        log.write(ROW)
    shown = screen.getvalue()
    assert "compiled in 4.2 s" in shown
    assert "loss 3.5000 (irreducible 3.2500)  KL 2.5e-01 bits" in shown
    assert "50/100" in shown


def test_nothing_is_shown_where_stderr_is_no_terminal(capsys):
    with MetricsLog(None, steps=100, show=True) as log:
        log.compiled(1.0)
        log.write(ROW)
    assert capsys.readouterr() == ("", "")
