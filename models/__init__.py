"""placeholder"""
if __name__ != "ppl_tunnels.models":
    raise ImportError(f"this folder is the package ppl_tunnels.models; it was imported as {__name__!r}. Write 'import ppl_tunnels.models'.")
