"""Every ring byte that the stock driver submitted is in the trace and decodes; a hang is said live.

python rings_e2e.py --rpcreplay P --rpcproxy P --trace-rings P --venv FOLDER CASE
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import SKIP, Failure, Process, Run, equal, event, expect, facts, venv  # noqa: E402


def rings_of(tool, trace):
    out = subprocess.run([tool, str(trace)], capture_output=True, text=True)
    equal(out.returncode, 0, "exit status of trace_rings")
    return {q["name"]: q for q in map(json.loads, out.stdout.splitlines())}


def run_client(run, *arguments, **environment):
    target = run.address.split(":", 1)[1]
    where = {"REMOTE": target} if run.tcp else {"APL_REMOTE_SOCK": target}
    process = Process([run.python, HERE / "ring_client.py", *arguments],
                      {**run.environment, **where, **environment}, run.folder / "rings.log")
    process.wait()
    return process.output()


def whole(start, tool, tcp):
    with start(tcp=tcp) as run:
        mine = event(facts(run_client(run, "60")), "rings")
        run.proxy.stop()
        seen = rings_of(tool, run.trace)
        for name in ("SDMA0", "COMPUTE0"):
            q = seen[name]
            expect(len(mine[name]) > 1000, f"{name} was used")
            equal(q["ring"], mine[name], f"ring bytes of {name} in the trace")
            equal(q["observed"], q["submissions"], f"submissions of {name} whose packets were seen")
            equal(q["not_packets"], 0, f"stretches of {name} that are no packets")
            equal(q["bytes"], len(mine[name]) // 2, f"bytes announced on {name}")


def cost(start, tool):
    """Bytes of trace per submission: at most 1.5 times the ring bytes, plus 200."""
    sizes = []
    for copies in ("100", "600"):
        with start() as run:
            run.client("many", copies)
            run.proxy.stop()
            sizes.append(run.trace.stat().st_size)
    each = (sizes[1] - sizes[0]) / 500
    print(f"{each:.0f} bytes of trace per submission of 68 ring bytes")
    expect(each <= 1.5 * 68 + 200, f"{each} bytes of trace per submission")


def stall(start, tool):
    with start(sim=["--hang", "sdma-stall:after=3:count=1"]) as run:
        run.client("many", "10", status=None, HCQDEV_WAIT_TIMEOUT_MS="2500")
        run.proxy.stop()
        log = run.proxy.output()
        begun = re.search(r"GPU stall: the client polls the interrupt ring since ([0-9.]+) s", log)
        expect(begun, f"the stall was not said live:\n{log}")
        expect(float(begun[1]) < 1, "said within a second of the stall")
        expect("SDMA0 rptr 0xe4 wptr 0x2a8, 452 bytes / 20 packets left; at: COPY_LINEAR 65536 "
               "bytes" in log, log)
        expect(re.search(r"fence missing: \[0x2000[0-9a-f]+\] = 4\b", log), log)
        over = re.search(r"GPU stall over after .*", log)
        expect(over and "SDMA0 rptr 0xe4 wptr 0x2a8" in over[0], log)
        q = rings_of(tool, run.trace)["SDMA0"]
        expect(q["headline"].startswith("SDMA0 rptr 0xe4 wptr 0x2a8, 452 bytes / 20 packets left; "
                                        "at: COPY_LINEAR 65536 bytes"), q["headline"])


CASES = {
    "unix": lambda start, tool: whole(start, tool, False),
    "tcp": lambda start, tool: whole(start, tool, True),
    "cost": cost,
    "stall": stall,
}


def main():
    parser = argparse.ArgumentParser()
    for name in ("rpcreplay", "rpcproxy", "trace-rings", "venv"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("case", choices=CASES)
    options = parser.parse_args()
    try:
        python = venv(options.venv)
        if python is None:
            print("SKIPPED: PyPI is out of reach. Set TINYGPU_TEST_VENV.")
            return SKIP
        tools = {"rpcreplay": os.path.abspath(options.rpcreplay),
                 "rpcproxy": os.path.abspath(options.rpcproxy)}
        CASES[options.case](lambda **how: Run(tools, python, **how),
                            os.path.abspath(options.trace_rings))
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
