"""Records the fixtures of the simulated cards anew: the stock tinygrad driver, through the proxy.

python record.py --rpcreplay P --rpcproxy P --zoo-pack P --venv FOLDER [NAME...]

Beside each trace goes what tinygrad itself said of the card (NAME.tinygrad.json): the test compares
the decoder's answer with that, not with an earlier one of its own.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import SKIP, Run, check_copies, event, expect, facts, until, venv  # noqa: E402


def full_then_partial(run):
    first, _ = run.client("copy", "65536", "3000000")
    second, _ = run.client("copy", "65536")
    check_copies(second, [65536])
    return [event(first, "boot"), event(second, "boot")]


def killed_then_malformed(run):
    victim = run.start("wait")
    until(lambda: '"ready"' in victim.output() or victim.process.poll() is not None,
          "the first client is at work", 60)
    first = facts(victim.output())
    victim.stop(signal.SIGKILL)
    second, _ = run.client("copy", "65536")
    check_copies(second, [65536])
    return [event(first, "boot"), event(second, "boot")]


TRACES = {
    "navi31_large": (["--asic", "navi31"], full_then_partial),
    "navi31_small": (["--asic", "navi31", "--bar0", "256M"], killed_then_malformed),
    "navi48_large": (["--asic", "navi48"], killed_then_malformed),
    "navi48_small": (["--asic", "navi48", "--bar0", "256M"], full_then_partial),
}


def main():
    parser = argparse.ArgumentParser()
    for name in ("rpcreplay", "rpcproxy", "zoo-pack", "venv"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("names", nargs="*", default=list(TRACES))
    options = parser.parse_args()
    python = venv(options.venv)
    if python is None:
        print("PyPI is out of reach. Set TINYGPU_TEST_VENV.")
        return SKIP
    tools = {"rpcreplay": os.path.abspath(options.rpcreplay),
             "rpcproxy": os.path.abspath(options.rpcproxy)}
    for name in options.names:
        sim, do = TRACES[name]
        with Run(tools, python, sim=sim) as run:
            boots = do(run)
            run.finish()
            log = run.proxy.output()
            expect("not recorded" not in log, log)
            fixture = HERE / "traces" / f"{name}.zst"
            subprocess.run([options.zoo_pack, "pack", run.trace, fixture, "mock"], check=True)
            for boot in boots:
                boot.pop("seconds")
            (HERE / "traces" / f"{name}.tinygrad.json").write_text(
                json.dumps(boots, indent=1, sort_keys=True) + "\n")
            print(name, fixture.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
