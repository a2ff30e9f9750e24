"""Exact oracles, derived from programs: `derive` chooses among the engines, each in a file of its own."""
