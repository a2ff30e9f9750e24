"""Help with misspelt names."""

from ppl_tunnels.errors import NoEngineError, OracleDisagreementError, TunnelError, suggest


def test_suggestions_name_the_closest_and_list_the_known():
    """Would catch a hint that names something that does not exist."""
    assert suggest("fce", ["face", "state"]) == "did you mean 'face'? (known: face, state)"
    assert suggest("xyz", ["face"]) == "(known: face)"
    assert suggest("xyz", []) == "(known: none)"


def test_one_except_clause_catches_every_refusal():
    """Would catch a refusal that escapes `except TunnelError`, and so ends the command line in a traceback."""
    assert issubclass(NoEngineError, TunnelError) and issubclass(OracleDisagreementError, TunnelError)
    assert issubclass(TunnelError, ValueError)
