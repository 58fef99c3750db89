"""rpcdecode diff on traces of the real driver: good runs are equal, and against each way to hang it
names the first event that the generator planted."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from harness import Failure, Run, SKIP, equal, expect, venv

ACTION = ("many", "10")


class Bench:
    def __init__(self, tools, python):
        self.tools, self.python = tools, python
        self.folder = tempfile.mkdtemp(prefix="rpcdiff")
        self.count = 0

    def record(self, *clients, sim=(), tcp=False):
        """A trace of the clients, one after the other; each is (action, argument...)."""
        self.count += 1
        kept = f"{self.folder}/{self.count}.pb"
        with Run(self.tools, self.python, sim=sim, tcp=tcp) as run:
            for client in clients or (ACTION,):
                run.client(*client, status=None if sim else 0,
                           HCQDEV_WAIT_TIMEOUT_MS="1500")
            run.proxy.stop()
            shutil.copy(run.trace, kept)
            run.sim.stop()
        return kept

    def diff(self, a, b, *options, code=None):
        done = subprocess.run([self.tools["rpcdecode"], "diff", a, b, *options],
                              capture_output=True, text=True, timeout=120)
        if code is not None:
            equal(done.returncode, code,
                  f"exit status of diff {options}; it said:\n{done.stdout[-6000:]}{done.stderr}\n")
        return done.stdout

    def equal_traces(self, a, b):
        for one, other in ((a, b), (b, a)):
            said = self.diff(one, other, code=0)
            expect(said.endswith("no difference\n"), said)

    def json(self, a, b, *options):
        return json.loads(self.diff(a, b, "--format", "json", *options))

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def load():
    """Makes the machine busy, so that every wait takes another number of polls."""
    spin = "while True: pass"
    return [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(4)]


def good(bench, tcp=False, sim=()):
    """Two runs on an idle machine and one on a loaded one, full and partial boot in each."""
    clients = (ACTION, ("copy", "65536", "4096"), ("barrier", "3"))
    runs = [bench.record(*clients, tcp=tcp, sim=sim) for _ in range(2)]
    burners = load()
    try:
        runs.append(bench.record(*clients, tcp=tcp, sim=sim))
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    bench.equal_traces(runs[0], runs[1])
    bench.equal_traces(runs[0], runs[2])
    bench.equal_traces(runs[2], runs[2])
    result = bench.json(runs[0], runs[2])
    expect(result["equal"] and result["total"] == 0 and result["a"]["events"] > 1500, str(result))


def first(result):
    """The first difference as lines: kind, and what of either side."""
    difference = result["differences"][0]
    lines = {}
    for side in "ab":
        lines[side] = [f"{e['what']} = {e['value']}" for e in difference[side]]
    return difference["kind"], lines["a"], lines["b"]


# --hang, clients, transport: what the first difference must be, kind and side B's (or A's) first
# event. The numbers follow from the rule: `after=3` strikes the fourth of its kind.
HANGS = {
    "sdma_stall": (["sdma-stall:after=3"], [ACTION], "extra",
                   r"SDMA0 submission 4 never finished: at COPY_LINEAR 65536 bytes .*fence 4 not seen"),
    "sdma_poll": (["sdma-poll-never:after=3"], [ACTION], "extra",
                  r"SDMA0 submission 4 never finished: at POLL_REGMEM \[0x\w+\] >= 3"),
    "compute_stall": (["compute-stall:after=2"], [("barrier", "5")], "extra",
                      r"COMPUTE0 submission 3 never finished"),
    "fence_lost": (["fence-lost:after=3"], [ACTION], "extra",
                   r"SDMA0 submission 4 never finished: .*fence 4 not seen"),
    "doorbell_lost": (["doorbell-lost:after=3"], [ACTION], "extra",
                      r"SDMA0 submission 4 never finished"),
    "page_fault": (["page-fault:after=3:count=1"], [("many", "10")], "extra",
                   r"interrupts discarded unread = 1"),
    "page_fault_stop": (["page-fault:stop:after=3"], [ACTION], "extra",
                        r"SDMA0 submission 4 never finished: at COPY_LINEAR"),
    "smu_dead": (["smu-dead:after=20"], [ACTION], "value|replaced",
                 r"mmMP1_SMN_C2PMSG_90 = 0x0"),
    "psp_dead": (["psp-dead:after=4"], [ACTION], "value|replaced", r"regMP0_SMN_C2PMSG_\w+ = 0x|VRAM"),
    "all_ones": (["all-ones:after=26000"], [ACTION], ".*", r".* = 0xf{8,16}"),
    "config_retry": (["config-retry:after=2"], [ACTION], "value|replaced",
                     r"CFG_READ .* = 0x\w+"),
    "refuse": (["refuse:MAP_SYSMEM_FD:no free slots:after=20"], [ACTION], "replaced|value",
               r"MAP_SYSMEM_FD.* = refused: no free slots"),
    "refuse_map_bar": (["refuse:MAP_BAR:after=1"], [ACTION], "replaced|value",
                       r"MAP_BAR 2 = refused"),
    "exit": (["exit:after=5000"], [ACTION], "replaced|missing",
             r"end = server closed first.*|page table .*"),
}


def hang(bench, name, tcp=False):
    rules, clients, kind, event = HANGS[name]
    whole = bench.record(*clients, tcp=tcp)
    sim = [word for rule in rules for word in ("--hang", rule)]
    hung = bench.record(*clients, sim=sim, tcp=tcp)
    bench.diff(whole, hung, code=1)
    result = bench.json(whole, hung)
    got, _, b = first(result)
    expect(re.fullmatch(kind, got) and b and re.match(event, b[0]),
           f"first difference {got} {first(result)}, expected {kind} {event}")
    mirror, a, _ = first(bench.json(hung, whole))
    equal(mirror, {"extra": "missing", "missing": "extra"}.get(got, got), "kind when swapped")
    equal(a, b, "the same events when swapped")
    return result


def slow(bench):
    """Only the time differs: no difference, but it is said."""
    whole = bench.record()
    other = bench.record(sim=["--hang", "slow:300:after=26000"])
    said = bench.diff(whole, other, code=0)
    expect("no difference" in said, said)


def more(bench):
    """More work in one of them is one difference, wherever it is and whatever follows."""
    for clients, other, what in (
            ([("many", "10")], [("many", "11")], "one copy more"),
            ([("barrier", "5")], [("barrier", "6")], "one submission more"),
            ([("copy", "65536", "4096")], [("copy", "65536", "12288", "4096")],
             "a buffer and two copies more, in the middle")):
        a, b = bench.record(*clients), bench.record(*other)
        result = bench.json(a, b)
        shown = [(d["kind"], d["count_a"], d["count_b"]) for d in result["differences"]]
        equal([d[0] for d in shown], ["extra"], f"differences for {what}: {shown}")
        mirror = bench.json(b, a)
        equal([(d["kind"], d["count_b"], d["count_a"]) for d in mirror["differences"]],
              [("missing", shown[0][1], shown[0][2])], f"{what}, swapped")


def transports(bench):
    """The same run over both transports: what both have is equal, and it says which they are."""
    said = bench.diff(bench.record(), bench.record(tcp=True), code=0)
    expect("different transports: A unix, B tcp" in said, said)


def chips(bench):
    a, b = bench.record(), bench.record(sim=["--asic", "navi48"])
    said = bench.diff(a, b, code=1)
    expect("different chips: A gc 11.0.0, B gc 12.0.1" in said, said)


CASES = {
    "good": lambda bench: good(bench),
    "good_tcp": lambda bench: good(bench, tcp=True),
    "good_navi48": lambda bench: good(bench, sim=("--asic", "navi48")),
    "good_small_bar": lambda bench: good(bench, sim=("--bar0", "256M")),
    "slow": slow,
    "more": more,
    "transports": transports,
    "chips": chips,
    **{f"hang_{name}": (lambda bench, name=name: hang(bench, name)) for name in HANGS},
    **{f"hang_tcp_{name}": (lambda bench, name=name: hang(bench, name, tcp=True))
       for name in ("sdma_stall", "fence_lost", "all_ones")},
}


def main():
    parser = argparse.ArgumentParser()
    for tool in ("rpcreplay", "rpcproxy", "rpcdecode"):
        parser.add_argument(f"--{tool}", required=True, type=os.path.abspath)
    parser.add_argument("--venv", required=True)
    parser.add_argument("case", choices=CASES)
    options = parser.parse_args()
    tools = {name: getattr(options, name) for name in ("rpcreplay", "rpcproxy", "rpcdecode")}
    bench = None
    try:
        python = venv(options.venv)
        if python is None:
            print("SKIPPED: PyPI is out of reach, so tinygrad cannot be installed. Set "
                  "TINYGPU_TEST_VENV to a virtual environment that has it.")
            return SKIP
        bench = Bench(tools, python)
        CASES[options.case](bench)
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        if bench:
            print(f"traces are in {bench.folder}", file=sys.stderr)
        return 1
    bench.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
