"""The page says what the certificate says: every number, every verdict, nobody's markup, nothing from the network."""

import ast
import copy
import doctest
import html.parser
import json
import math
import re
import sys
from pathlib import Path

import pytest

from ppl_tunnels.verification import report


def certificate(verdict: str = "certified", *, steps: int = 19) -> dict:
    """A certificate of a transformer in the bijection tunnel, with numbers of the size that real ones have."""
    scale = {"certified": 1.0, "undecided": 150.0, "refuted": 9000.0}[verdict]
    said = {"certified": "at most 0.00077", "undecided": "at most 0.011", "refuted": "at least 0.59"}[verdict]
    return {
        "schema": "ppl_tunnels.certificate/1",
        "verdict": verdict,
        "claim": "Weights fixed before the key was drawn: over fresh episodes of this configuration, the mean over "
        f"predicted steps of KL(oracle ‖ floored predictor) is {said} bits, at 99 % confidence.",
        "reasons": ["What was found about the bounds.", "What was found about the invariants."],
        "tolerance_bits": 0.01,
        "confidence": 0.99,
        "episodes": 12000,
        "unit": "sequence",
        "tunnel": {
            "name": "bijection",
            "source": "ppl_tunnels.tunnels.bijection:bijection",
            "configuration": {"size": steps + 1, "length": steps, "distinct": True},
            "fingerprint": "9b1f0c2e" * 8,
            "primitives": ["accumulation"],
            "predict": "value",
            "steps": steps,
            "scored_steps": steps,
            "symbols": 20,
            "episode_bits": 61.077382,
            "episode_bits_note": "what varies between episodes: a table of them would need 2^61 rows",
        },
        "predictor": {
            "name": "transformer",
            "kind": "ModelPredictor",
            "fingerprint": "4c07d1aa" * 8,
            "targets": "oracle",
            "training": {"steps": 2500, "batch": 64, "optimizer": "muon", "learning_rate": 0.02, "betas": [0.9, 0.95]},
        },
        "claims": claims(scale),
        "positions": [position(step, steps, scale) for step in range(1, steps + 1)],
        "invariants": [
            invariant("causal", "What comes later changes no earlier prediction.", failed=verdict == "refuted"),
            invariant("normalised", "Probabilities sum to one."),
            invariant("no zero", "No probability is zero where the oracle's is not."),
        ],
        "ladder": ladder(),
        "vacuous": False,
        "oracle": {
            "engine": "closed form",
            "explain": "Elimination: the values seen are ruled out, the rest are equally likely.\nEqual to enumeration.",
            "check": [
                {"property": "enumeration equals closed form", "passed": True, "worst": 1.1e-16, "cases": 20},
                {"property": "martingale", "passed": True, "worst": 4.4e-16, "cases": 1},
            ],
        },
        "keys": {"certification_seed": 8316263846263849123, "chosen": "hash of weights, tunnel and configuration"},
        "versions": {"ppl_tunnels": "0.1.0", "jax": "0.12.0.1", "numpyro": "0.22.0", "numpy": "2.5.5"},
        "precision": "float64",
        "platform": "cpu",
        "seconds": 12.3456789,
        "created": "2026-11-30T12:00:00Z",
        "content_hash": "e3b0c442" * 8,
    }


def judge(lower: float, upper: float, tolerance: float) -> str:
    return "failed" if lower > tolerance else "passed" if upper <= tolerance else "undecided"


def position(step: int, steps: int, scale: float) -> dict:
    oracle, kl = math.log2(steps + 2 - step), scale * 5.31e-5 * (1 + 0.5 * math.sin(1.7 * step)) * 1.05**step
    lower, upper = max(0.0, kl - 3.4e-4), kl + 7.123456e-4
    return {
        "step": step,
        "kl_bits": kl,
        "kl_lower": lower,
        "kl_upper": upper,
        "model_entropy_bits": oracle * (1 - kl / (1 + kl)),
        "oracle_entropy_bits": oracle,
        "entropy_error_bits": 2.2 * kl,
        "verdict": judge(lower, upper, 0.01),
    }


def claims(scale: float) -> list[dict]:
    root = math.sqrt(scale)
    rows = [
        ("kl_bits", "KL to the oracle, floored", "Mean of KL(oracle ‖ floored predictor).", 6.6041e-5 * scale, 14.81),
        ("total_variation", "Total variation", "Half the sum of absolute differences.", 0.0011 * root, 1),
        ("entropy_error_bits", "Entropy error", "The published criterion, never sufficient.", 5.1e-4 * root, 4.3219281),
        ("worst_position", "Worst position", "KL at the step where it is largest.", 1.9e-4 * scale, 14.81),
        ("jensen_shannon_bits", "Jensen–Shannon", "Symmetric and bounded.", 1.6e-5 * scale, 1),
    ]
    made = []
    for name, title, statement, estimate, span in rows:
        tolerance = 0.058870501125773734 if name == "total_variation" else 0.01
        lower, upper = max(0.0, estimate - 0.035 * tolerance), estimate + 0.07 * tolerance
        words = {"name": name, "title": title, "statement": statement, "votes": name != "jensen_shannon_bits"}
        numbers = {"estimate": estimate, "lower": lower, "upper": upper, "tolerance": tolerance, "range": span}
        more = {"unit": "" if name == "total_variation" else "bits", "range_reason": "known in advance", "n": 12000}
        verdict = judge(lower, upper, tolerance)
        p_refute = 3.2e-19 if verdict == "failed" else 1.0
        made.append(words | numbers | more | {"chernoff_upper": 1.4 * upper, "p_refute": p_refute, "verdict": verdict})
    return made


def invariant(name: str, statement: str, *, failed: bool = False) -> dict:
    found = {"worst": 0.3127, "where": "episode 3, step 5"} if failed else {"worst": 2.2e-16, "where": None}
    return {"name": name, "statement": statement, "passed": not failed} | found


def ladder() -> list[dict]:
    rows = [
        ("uniform", "Every symbol alike, whatever was seen", 1.1073, 0.416, 1.1073),
        ("prior", "The predictive before any evidence", 1.1073, 0.416, 1.1073),
        ("position clock", "The mean prediction at each step", 1.0912, 0.411, 0.0),
        ("memoryless", "The current step alone", 1.1073, 0.416, 1.1073),
        ("window 4", "Remembers four steps", 0.7361, 0.301, 0.7361),
        ("window 8", "Remembers eight steps", 0.4315, 0.214, 0.4315),
        ("stale", "One step behind", 0.0931, 0.062, 0.0931),
        ("label-permuted", "The posterior with its symbols relabelled", 1.842, 0.677, 0.0),
        ("overconfident", "Probabilities squared and normalised", 0.0, 0.0, 0.0),
        ("plug-in", "The most probable hypothesis alone", None, 0.5, 2.1094),
    ]
    names = ("agent", "description", "kl_bits", "total_variation", "entropy_error_bits")
    return [dict(zip(names, row, strict=True)) | {"within_tolerance": row[2] == 0} for row in rows]


class Page(html.parser.HTMLParser):
    """What a test asks of a page: its tags with their attributes, its text, and its numbers as (path, value, shown)."""

    VOID = ("meta", "link", "br")

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.numbers, self.words, self._open, self._shown = [], [], [], [], None
        self.feed(text)
        assert not self._open, f"tags left open: {self._open}"

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "data":
            self._shown = (attributes["data-path"], attributes["value"])
        if "data-value" in attributes:
            self.numbers.append((attributes["data-path"], attributes["data-value"], None))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        self._shown = None if tag == "data" else self._shown

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.words.append(data)
        if self._shown:
            self.numbers.append((*self._shown, data))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(shown: str) -> float:
    """The number that a printed numeral stands for."""
    superscripts = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")
    mantissa, _, exponent = shown.replace(",", "").partition("×10")
    number = float(mantissa.removesuffix("\N{NO-BREAK SPACE}%").translate(superscripts))
    number *= 10.0 ** int(exponent.translate(superscripts) or 0)
    return number / 100 if shown.endswith("%") else number


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@pytest.mark.parametrize("steps", [1, 2, 19, 50])
@pytest.mark.parametrize("verdict", report.VERDICTS)
def test_every_number_is_on_the_page_and_equals_the_json(verdict, steps):
    given = certificate(verdict, steps=steps)
    # Through a file, as a certificate comes.
    fields = dict(report.json_fields(json.loads(json.dumps(given, allow_nan=False))))
    page = Page(report.render_html(given))
    for path, value, shown in page.numbers:
        assert json.loads(value) == fields[path], path
        if shown is not None and fields[path] is not None:
            assert read(shown) == pytest.approx(fields[path], rel=1e-2), path
    wanted = {path for path, value in fields.items() if is_number(value)}
    assert wanted - {path for path, *_ in page.numbers} == set()
    drawn = {path for path, _, shown in page.numbers if shown is None}
    for index in range(steps):
        for name in ("kl_bits", "model_entropy_bits", "oracle_entropy_bits"):
            assert f"positions[{index}].{name}" in drawn
    assert {f"claims[{index}].estimate" for index in range(5)} <= drawn
    assert {f"ladder[{index}].kl_bits" for index in range(10)} <= drawn


@pytest.mark.parametrize("verdict", report.VERDICTS)
def test_the_verdict_is_the_first_thing_said_in_words_and_with_an_icon(verdict):
    given = certificate(verdict)
    text = report.render_html(given)
    page = Page(text)
    heading = text[text.index("<h1>") : text.index("</h1>")]
    assert heading.endswith(verdict.capitalize()) and "<svg" in heading
    assert f"<title>{verdict.capitalize()}: transformer in the wind tunnel bijection</title>" in text
    assert ("body", {"class": verdict}) in page.tags
    others = {word.capitalize() for word in report.VERDICTS} - {verdict.capitalize()}
    assert all(word not in heading for word in others)
    places = [page.text.index(part) for part in (given["claim"], *given["reasons"], "Entropy by step", "Claims")]
    assert places == sorted(places)
    icons = {word: re.search(r'<path d="([^"]+)"', report.render_html(certificate(word))) for word in report.VERDICTS}
    assert len({icon[1] for icon in icons.values()}) == 3, "the verdicts' icons differ in shape, not only in colour"


@pytest.mark.parametrize("verdict", report.VERDICTS)
def test_a_bound_never_prints_on_the_wrong_side_of_its_tolerance(verdict):
    given = certificate(verdict)
    given["claims"][0] |= {"lower": 0.0099999, "estimate": 0.00999999, "upper": 0.010000004, "tolerance": 0.01}
    given["claims"][1] |= {"lower": 0.0, "estimate": 0.001, "upper": 0.05887}  # below .058870501…, which reads .0589
    given["positions"][0] |= {"kl_lower": 0.0099999, "kl_bits": 0.00999999, "kl_upper": 0.010000004}
    shown = {}
    for path, _, text in Page(report.render_html(given)).numbers:
        if text and text[0].isdigit():
            shown.setdefault(path, set()).add(read(text))  # the same number may stand in several places
    rows = [(f"claims[{index}].", claim, claim["tolerance"]) for index, claim in enumerate(given["claims"])]
    rows += [(f"positions[{index}].kl_", row, 0.01) for index, row in enumerate(given["positions"])]
    for path, row, tolerance in rows:
        printed = max(shown.get(path + "tolerance", {tolerance}))
        for part, outwards in (("lower", -1), ("upper", 1)):
            value = row.get(part, row.get(f"kl_{part}"))
            for number in shown[path + part]:
                assert (number > printed) == (value > tolerance), path + part
                assert outwards * (number - value) >= -1e-15 * value, f"{path}{part} is rounded outwards"


def test_nothing_comes_from_elsewhere_and_nothing_runs():
    text = report.render_html(certificate())
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "iframe", "img", "object", "embed", "form", "base", "audio", "video", "foreignobject"}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} {name}"
            if name in ("href", "src", "xlink:href", "action", "data", "srcset", "poster"):
                assert value.startswith(("#", "data:")), f"{tag} {name}={value}"
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "script-src" not in policy


def test_every_text_is_escaped():
    evil = "<script>alert('x')</script>\"><b onclick=y>&amp;"

    def poison(value):
        if isinstance(value, dict):
            return {name: poison(part) for name, part in value.items()}
        if isinstance(value, list):
            return [poison(part) for part in value]
        kept = (*report.VERDICTS, "passed", "failed", "ppl_tunnels.certificate/1", "kl_bits", "total_variation")
        return evil + value if isinstance(value, str) and value not in kept else value

    given = poison(certificate())
    given["tunnel"]["name"] = "<script>"
    given["tunnel"]["configuration"][evil] = 3
    page = Page(report.render_html(given))
    assert not {tag for tag, _ in page.tags} & {"script", "b"}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "in the wind tunnel <script>" in page.text
    assert page.text.count("alert('x')") > 50


def test_null_means_unbounded_and_is_drawn_at_the_end_of_the_axis():
    given = certificate("refuted")
    for name in ("estimate", "upper", "chernoff_upper", "p_refute"):
        given["claims"][0][name] = None
    for name in ("kl_bits", "kl_upper"):
        given["positions"][3][name] = None
    given["predictor"]["training"] = given["predictor"]["targets"] = given["claims"][1]["unit"] = None
    page = Page(report.render_html(given))
    nulls = [(path, shown) for path, value, shown in page.numbers if value == "null" and shown]
    assert ("ladder[9].kl_bits", "unbounded") in nulls and ("claims[0].upper", "unbounded") in nulls
    assert ("claims[0].chernoff_upper", "–") in nulls
    ends = {a["data-path"]: a["x"] for tag, a in page.tags if tag == "svg" and a.get("data-value") == "null"}
    assert ends.pop("positions[3].kl_bits") not in ("0%", "100%"), "a step keeps its place across"
    assert ends == {"ladder[9].kl_bits": "100%", "claims[0].estimate": "100%"}
    assert "is not recorded" in page.text


def test_the_model_stands_among_the_agents_by_its_kl():
    given = certificate("refuted")
    text = report.render_html(given)
    rows = re.findall(r'<th scope="row">([^<]+?) ?<', text[text.index('class="ladder"') : text.index("Invariants")])
    assert rows[0] == "plug-in" and rows[-1] == "overconfident"
    assert rows.index("window 4") < rows.index("transformer") < rows.index("window 8")


def test_a_vacuous_tunnel_and_a_key_given_by_hand_are_said_aloud():
    given = certificate("undecided")
    plain = Page(report.render_html(given)).text
    given["vacuous"], given["keys"]["chosen"] = True, "given"
    loud = Page(report.render_html(given)).text
    for words in ("vacuous at this tolerance", "the key was given by hand"):
        assert words in loud and words not in plain


def test_a_certificate_with_empty_lists_still_has_a_page():
    empty = {"claims": [], "positions": [], "invariants": [], "ladder": [], "reasons": []}
    page = Page(report.render_html(certificate() | empty))
    assert "Certified" in page.text and "No reference agent was run." in page.text


def test_pictures_have_a_text_alternative_and_tables_a_scope():
    page = Page(report.render_html(certificate()))
    for tag, attributes in page.tags:
        if tag == "svg":
            named = attributes.get("role") == "img" and attributes.get("aria-label")
            assert named or attributes.get("aria-hidden") == "true" or attributes["class"] == "mark", attributes
        if tag == "th":
            assert attributes.get("scope") in ("col", "row")
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_page_is_a_function_of_the_certificate():
    given = certificate()
    kept = copy.deepcopy(given)
    assert report.render_html(given) == report.render_html(json.loads(json.dumps(given)))
    assert given == kept


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("path", "named"),
    [
        (("claims", 2, "upper"), "claims[2].upper"),
        (("positions", 18, "kl_bits"), "positions[18].kl_bits"),
        (("predictor", "training", "lr-end"), 'predictor.training["lr-end"]'),
        (("seconds",), "seconds"),
    ],
)
def test_what_is_not_finite_is_refused_by_name(bad, path, named):
    given = certificate()
    part = given
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = bad
    with pytest.raises(ValueError, match=re.escape(f"certificate field {named} is {bad}; expected a finite number")):
        report.render_html(given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "ppl_tunnels.certificate/2"}, "field schema is 'ppl_tunnels.certificate/2'; expected 'ppl_tunnels"),
        ({"verdict": "perfect"}, "field verdict is 'perfect'; expected 'certified' or"),
        ({"claims": [{"name": "kl_bits"}]}, "the certificate is not complete"),
        ({"tolerance_bits": 0}, "field tolerance_bits is 0; expected a positive number"),
        ({"seconds": {1, 2}}, "field seconds is a set; expected JSON"),
        ({"versions": {3: "x"}}, "field versions has the key 3; expected strings"),
    ],
)
def test_what_is_no_certificate_is_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        report.render_html(certificate() | change)


def test_a_list_is_refused():
    with pytest.raises(ValueError, match="the certificate is a list; expected a dict"):
        report.render_html([])


@pytest.mark.parametrize("name", sorted(certificate()))
def test_a_missing_field_is_a_value_error(name):
    given = certificate()
    del given[name]
    with pytest.raises(ValueError, match=f"not complete.*{name}|field {name} is None"):
        report.render_html(given)


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    report.write_html(certificate(), path)
    whole = path.read_text(encoding="utf-8")
    assert whole == report.render_html(certificate())
    with pytest.raises(ValueError, match="seconds is nan"):
        report.write_html(certificate() | {"seconds": math.nan}, path)

    def fail(*_):
        raise OSError("the disk is full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(f"os.{name}", fail)
            with pytest.raises(OSError, match="the disk is full"):
                report.write_html(certificate("refuted"), path)
        assert path.read_text(encoding="utf-8") == whole
        assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"
    report.write_html(certificate("refuted"), str(path))
    assert "Refuted" in path.read_text(encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="does not exist; create it"):
        report.write_html(certificate(), tmp_path / "none" / "report.html")


def test_rendering_needs_no_jax():
    folder = Path(report.__file__).parent
    for name in ("report", "figures", "drawing", "numerals"):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for module in names:
                known = module.split(".")[0] in {*sys.stdlib_module_names, "jinja2", "markupsafe"}
                own = module.removeprefix("ppl_tunnels.verification") in ("", ".drawing", ".numerals")
                assert known or own, f"{name}.py imports {module}"


def test_colours_are_set_in_one_place_only():
    text = report.render_html(certificate())
    body = text[text.index("<body") :]
    assert not re.search(r'(fill|stroke|style|color)="', body)
    rules = re.sub(r":root \{[^}]*\}", "", text[: text.index("<body")])
    assert not re.search(r"#[0-9a-f]{3,6}\b", rules)


def test_the_examples_hold():
    failed, tried = doctest.testmod(report)
    assert tried and not failed
