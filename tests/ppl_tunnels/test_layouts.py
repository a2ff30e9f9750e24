"""Layouts as text: read, checked, and followed position by position."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import wind_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.layouts import Layout, items
from ppl_tunnels.verification.encoding_properties import encoding_faults


def published(*, length):
    """Two pairs stored, then queries whose answers are never shown."""
    return Layout("START {key table} GO", ("{k} SEP {v}",) * 2 + ("FILL*2 ASK {k} _!",) * (length - 2))


@wind_tunnel(
    stream=("k", "v"),
    context="key table",
    scored=lambda length: [False, False] + [True] * (length - 2),
    layouts={"published": published},
)
def pairs(length=4):
    """A site with a space in its name, and values that are copies of their keys."""
    with numpyro.plate("two", 2):
        numpyro.sample("key table", dist.Categorical(jnp.ones(3) / 3))
    with numpyro.plate("n", length):
        key = numpyro.sample("k", dist.Categorical(jnp.ones(3) / 3))
        numpyro.sample("v", dist.Categorical(jnp.eye(3)[key]))


def test_positions_of_a_layout():
    """Would catch markers that take each other's tokens, filler counted wrongly, and a readout off by one."""
    encoding = pairs.encoding("published")
    episodes = pairs.episodes(stream={"k": [[0, 1, 2, 1]], "v": [[0, 1, 2, 1]]}, context={"key table": [[2, 0]]})
    words = [encoding.decode(int(token)) for token in encoding.encode(episodes).tokens[0]]
    head = ["START", "key table = 2", "key table = 0", "GO", "k = 0", "SEP", "v = 0", "k = 1", "SEP", "v = 1"]
    assert words == [*head, *["FILL", "FILL", "ASK", "k = 2", "_"], *["FILL", "FILL", "ASK", "k = 1", "_"]]
    assert encoding.readout.tolist() == [5, 8, 14, 19]
    assert encoding.markers == ("START", "GO", "SEP", "FILL", "ASK", "_") and encoding.vocabulary_size == 6 + 9
    assert encoding_faults(encoding, pairs) == []
    values, written = encoding.read(encoding.encode(episodes))["v"]
    assert written[:, 0].tolist() == [True, True, False, False] and values[0, :2, 0].tolist() == [0, 1]


def test_the_last_answer_is_left_out_and_others_are_not():
    """Would catch a sequence that ends with its own answer."""
    encoding = pairs.encoding(Layout("{key table}", ("{k} {v}",) * 4))
    assert encoding.sequence_length == 9 and encoding.readout.tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("header", "line", "words"),
    [
        ("{key table}", "{k} {v}!", "shows 'v' before the prediction of 'v' is read; its answer must not stand"),
        ("{key table}", "{v} {k}", "shows 'k' only after the prediction of 'v' is read"),
        ("{key table}", "{k} _", "never shows 'v'; add {v}"),
        ("{key table}", "_!", "never shows 'k'; add {k}"),
        ("{key table}", "{k}! _! {v}", "reads 2 predictions"),
        ("{key table}", "{k} {v} {v}", "shows 'v' twice"),
        ("{key table}", "{k} {key table} {v}", "a context site, shown in the header; move it"),
        ("", "{k} {v}", "header '' never shows 'key table'"),
        ("{key table} {k}", "{k} {v}", "a stream site, shown in its steps"),
        ("{key table} GO!", "{k} {v}", "reads a prediction; predictions are read within steps"),
        ("{key table}", "{kk} {v}", "shows 'kk', which is no site; did you mean 'k'"),
        ("{key table}", "{k} {v", "cannot be read from '{v' on"),
        ("{key table}", "{k} {v}*x", "cannot be read from"),
    ],
)
def test_refusals_say_what_and_where(header, line, words):
    """Would catch the published leak, evidence withheld, and words that are not read as they were meant."""
    with pytest.raises(TunnelError) as refusal:
        pairs.encoding(Layout(header, (line,) * 4))
    assert words in str(refusal.value), str(refusal.value)


def test_other_refusals():
    """Would catch a layout of another length, and one that the tunnel does not name."""
    with pytest.raises(TunnelError, match="has 3 lines of steps; the episode has 4 steps"):
        pairs.encoding(Layout("{key table}", ("{k} {v}",) * 3))
    with pytest.raises(TunnelError, match="has no layout 'publishd'; did you mean 'published'"):
        pairs.encoding("publishd")


def test_json_counts_equal_lines():
    """Would catch lines merged that are not neighbours."""
    layout = Layout("A", ("x", "x", "y", "x"), shared=(("a", "b"),))
    assert layout.to_json() == {"header": "A", "steps": [["x", 2], ["y", 1], ["x", 1]], "shared": [["a", "b"]]}
    assert Layout.from_json(layout.to_json()) == layout


def test_an_item_repeated_is_read_after_the_last():
    """Would catch several readouts where one was marked."""
    assert [item.read for item in items("FILL*3!")] == [False, False, True]
    assert items("  ") == () and items("FILL*0 A")[0].marker == "A"
