"""Random programs by the thousand, every oracle compared with a referee: `python -m tests.fuzz.campaign --help`.

A seed gives one spec: a program shape, whose tables of numbers are context, so that every episode has numbers, data and all of
its own and one compilation judges dozens of programs. Compiling takes nearly all of the time, so XLA is told to be quick, and
what it compiled is kept on the disk. A campaign may be killed at any time and goes on from its file.

Run it from the root of the repository. Shards (`--every`, `--offset`) split the seeds among processes.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Optimised code would be run once or twice; one thread, so that processor time is what is measured.
QUICK = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_multi_thread_eigen=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
# Compiled functions are forgotten after so many specs, to bound memory.
_REMEMBERED = 10
# Another engine that would take the program is judged besides, every so many seeds.
_SECOND_ENGINE = 5
CASES = 120


def configure() -> None:
    """Quick compilation, a cache of it on the disk and double precision; to be called before anything is compiled."""
    os.environ["XLA_FLAGS"] = " ".join(filter(None, [os.environ.get("XLA_FLAGS", ""), *QUICK]))
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_compilation_cache_dir", str(Path(tempfile.gettempdir()) / "ppl-tunnels-fuzz-cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def judged(seed: int, *, every_engine: bool = False, cases: int = CASES) -> dict[str, Any]:
    """The journal's entry of one seed: its program and what came of comparing."""
    from ppl_tunnels.verification.strategies import seeded_spec
    from tests.fuzz.comparison import compare
    from tests.fuzz.verdict import Verdict

    spec, start = seeded_spec(seed), time.process_time()
    try:
        verdicts = compare(spec, every_engine=every_engine, cases=cases, seed=seed)
    except Exception as error:  # a crash is a finding, and the campaign goes on
        sentence = " ".join(str(error).split())[:400]
        verdicts = [Verdict("none", programs=1, crashes={"derive": f"{type(error).__name__}: {sentence}"})]
    entry = {
        "seed": seed,
        "family": spec.family,
        "reach": spec.reach,
        "shape": hashlib.sha256(spec.shape.to_json().encode()).hexdigest()[:16],
        "seconds": round(time.process_time() - start, 3),
        "verdicts": [vars(verdict) for verdict in verdicts],
    }
    return entry | ({"spec": spec.to_json()} if any(verdict.wrong for verdict in verdicts) else {})


def forget() -> None:
    """Drop compiled functions and every cache of the library that holds on to tunnels."""
    import jax

    for name, module in list(sys.modules.items()):
        if name.startswith("ppl_tunnels"):
            for function in list(vars(module).values()):
                getattr(function, "cache_clear", lambda: None)()
    jax.clear_caches()


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign; the exit status is 1 where something was answered wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__)
    parser.add_argument(
        "--cases", type=int, required=True, help="programs (shape and numbers) to judge, earlier runs included"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines, appended to")
    parser.add_argument("--reach", choices=("inside", "outside"), help="only programs of this reach; all by default")
    parser.add_argument("--every", type=int, default=1, help="only every so many seeds")
    parser.add_argument("--offset", type=int, default=0, help="the first of them")
    asked = parser.parse_args(arguments)
    configure()

    from ppl_tunnels.verification.strategies import seeded_spec
    from tests.fuzz.journal import Journal, Totals

    journal = Journal(asked.out)
    totals, done = Totals.of(journal.entries), {entry["seed"] for entry in journal.entries}
    print(f"{asked.out}: {totals.line()}", flush=True)
    seed, fresh = asked.seed + asked.offset, 0
    while totals.programs < asked.cases:
        if seed not in done and asked.reach in (None, "inside" if seeded_spec(seed).inside else "outside"):
            entry = judged(seed, every_engine=seed % _SECOND_ENGINE == 0)
            journal.add(entry)
            totals.add(entry)
            fresh += 1
            print(f"seed {seed}, {entry['seconds']:.1f} s: {totals.line()}", flush=True)
            if fresh % _REMEMBERED == 0:
                forget()
        seed += asked.every
    journal.close()
    print(totals.summary())
    return 1 if totals.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
