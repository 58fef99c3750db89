"""Makes the zoo's traces: the stock tinygrad driver on the simulated card, through `rpcproxy run`.

python generate.py --rpcreplay PATH --rpcproxy PATH --venv FOLDER [--out FOLDER] [NAME...]

writes NAME.pb for each animal of ANIMALS (default: all) to --out (default: the current folder).
With --rpcdecode PATH each is decoded and held against expected.json, which was written from the
hang specification; with --pack PATH (zoo_pack) it is also stored as traces/NAME.zst, as committed.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import SKIP, Failure, Process, expect, facts, until, venv  # noqa: E402

CLIENT = HERE.parent / "e2e" / "client.py"
SLOT_FILE = 8192  # bytes: a disk copy of one staging slot


class Animal:
    """One trace. `sim`: options of the card; `client`: action and arguments of tests/e2e/client.py.

    before    clients that ran before, unrecorded: (action, arguments...)
    again     further clients in the same trace (`rpcproxy serve` records it then)
    stop      signal for the client, and what is waited for first: a text in its output, or seconds
    second    a second client comes while the first is served
    holder    a client that the server serves already, unrecorded
    """

    def __init__(self, *client, sim=(), tcp=False, before=(), again=(), stop=None, second=False,
                 holder=None, timeout_ms=1500, env=None):
        self.client, self.sim, self.tcp = client, list(sim), tcp
        self.before, self.again, self.stop, self.second = before, again, stop, second
        self.holder = holder
        self.env = {"HCQDEV_WAIT_TIMEOUT_MS": str(timeout_ms), **(env or {})}

    @staticmethod
    def of(*client, hang=(), **how):
        hangs = [hang] if isinstance(hang, str) else list(hang)
        options = list(how.pop("sim", ()))
        for one in hangs:
            options += ["--hang", one]
        return Animal(*client, sim=options, **how)


A = Animal.of
NAVI48, SMALL = ("--asic", "navi48"), ("--bar0", "256M")
KILL, INT = signal.SIGKILL, signal.SIGINT
ANIMALS = {
    # ---- nothing wrong ----
    "boot": A("boot"),
    "copies": A("many", "40"),
    "chain": A("chain", "6"),
    "barrier": A("barrier", "4"),
    "partial_boot": A("copy", "65536", before=[("copy", "4096")]),
    "slow_machine": A("copy", "65536", hang="slow:150"),
    "ctrl_c": A("wait", stop=(INT, '"ready"')),
    "tcp_copies": A("copy", "65536", tcp=True),
    "navi48_copies": A("many", "3", sim=NAVI48),
    "small_bar_copies": A("many", "3", sim=SMALL),
    "two_clients": A("copy", "4096", again=[("copy", "4096")]),
    "slow_kernel": A("barrier", "3", hang="slow-kernel:25000000:after=1:count=1",
                     timeout_ms=30000),
    "timeouts_survived": A("timeouts", "6", hang=("compute-stall:after=2:count=1",
                                                  "compute-stall:after=4:count=1")),
    "ring_wraps": A("ring", "16384", "600"),
    # ---- queues ----
    "sdma_stall": A("many", "10", hang="sdma-stall:after=3"),
    "sdma_stall_first": A("many", "10", hang="sdma-stall"),
    "sdma_stall_tcp": A("copy", "65536", hang="sdma-stall", tcp=True),
    "sdma_stall_navi48": A("many", "10", hang="sdma-stall:after=3", sim=NAVI48),
    "sdma_stall_small_bar": A("many", "10", hang="sdma-stall:after=3", sim=SMALL),
    "sdma_stall_cut": A("many", "10", hang="sdma-stall:after=3", stop=(KILL, "booted+3"),
                        timeout_ms=30000),
    "sdma_stall_twice": A("twice", hang="sdma-stall"),
    "sdma_stall_silent": A("leak", "{file}", "1000", hang="sdma-stall:after=3",
                           stop=(KILL, "booted+4")),
    "sdma_stall_chain": A("chain", "6", hang="sdma-stall:after=2"),
    "sdma_poll_never": A("many", "10", hang="sdma-poll-never:after=3"),
    "compute_stall": A("barrier", "4", hang="compute-stall:after=2"),
    "compute_stall_chain": A("chain", "6", hang="compute-stall:after=2"),
    "fence_lost": A("many", "10", hang="fence-lost:after=3:count=1"),
    "fence_lost_compute": A("barrier", "4", hang="fence-lost:after=2:count=1"),
    "doorbell_lost": A("many", "10", hang="doorbell-lost:after=3"),
    "doorbell_lost_compute": A("barrier", "4", hang="doorbell-lost:after=2"),
    "slot_leak": A("leak", "{file}", "5", stop=(KILL, "failed+4")),
    "slot_leak_tcp": A("leak", "{file}", "5", stop=(KILL, "failed+4"), tcp=True),
    "sdma_stall_silent_tcp": A("leak", "{file}", "1000", hang="sdma-stall:after=3",
                               stop=(KILL, "booted+4"), tcp=True),
    "aql_chain": A("chain", "4", env={"AMD_AQL": "1"}),
    "aql_compute_stall": A("barrier", "4", hang="compute-stall:after=2", env={"AMD_AQL": "1"}),
    "sdma_watchdog": A("many", "10", hang="sdma-stall:watchdog:after=3"),
    "ring_full": A("ring", "65536", "2000", hang="sdma-stall:after=3", stop=(KILL, "booted+4")),
    "ring_full_tcp": A("ring", "65536", "2000", hang="sdma-stall:after=3", tcp=True,
                       stop=(KILL, "booted+6")),
    # 4 KiB asked, 16 KiB granted: the driver takes what it was granted for the ring's size
    "ring_overrun": A("ring", "4096", "150"),
    "ring_full_ctrl_c": A("ring", "65536", "2000", hang="sdma-stall:after=3",
                          stop=(INT, "booted+4")),
    "sdma_stall_silent_ctrl_c": A("leak", "{file}", "1000", hang="sdma-stall:after=3",
                                  stop=(INT, "booted+4")),
    "slot_leak_ctrl_c": A("leak", "{file}", "5", stop=(INT, "failed+4")),
    "waits_for_nobody": A("gap"),
    # ---- faults ----
    "page_fault_compute": A("barrier", "200", hang="page-fault:0x200000002000:stop:count=1"),
    "shader_error": A("barrier", "4", hang="shader-error:after=2"),
    "shader_error_navi48": A("barrier", "4", hang="shader-error:memviol:after=2", sim=NAVI48),
    "shader_error_aql": A("barrier", "4", hang="shader-error:after=2", env={"AMD_AQL": "1"}),
    "bad_packet": A("barrier", "4", hang="bad-packet:after=2"),
    "bad_packet_tcp": A("barrier", "4", hang="bad-packet:reserved:after=2", tcp=True),
    "privileged_register": A("barrier", "4", hang="bad-packet:priv_reg:after=2"),
    "privileged_instruction": A("barrier", "4", hang="bad-packet:priv_instr:after=2"),
    "page_fault": A("copy", "65536", hang="page-fault:count=1", again=[("copy", "4096")]),
    "page_fault_stop": A("copy", "65536", hang="page-fault:stop:count=1"),
    "page_fault_stop_navi48": A("copy", "65536", hang="page-fault:stop:count=1", sim=NAVI48),
    "page_fault_stop_tcp": A("copy", "65536", hang="page-fault:stop:count=1", tcp=True),
    # ---- the card's processors ----
    "smu_dead_boot": A("boot", hang="smu-dead"),
    "smu_dead_reset": A("boot", hang="smu-dead:after=42", before=[("boot",)],
                        env={"AM_RESET": "1"}),
    "psp_dead": A("boot", hang="psp-dead"),
    "psp_dead_ring": A("boot", hang="psp-dead:after=12"),
    "tlb_stuck_boot": A("boot", hang="tlb-stuck:after=10"),
    "tlb_stuck": A("map", "100", hang="tlb-stuck:after=100"),
    "tlb_semaphore": A("map", "100", hang="tlb-stuck:semaphore:after=60"),
    "mec_stuck": A("barrier", "4", hang=("compute-stall:after=2", "mec-stuck")),
    "mec_stuck_at_exit": A("barrier", "4", hang="mec-stuck"),
    "rlc_stuck": A("boot", hang="rlc-stuck"),
    "ras": A("many", "10", hang="ras:after=4:count=1"),
    "ras_athub": A("barrier", "4", hang="ras:athub:after=2:count=1", sim=NAVI48),
    # ---- the link and the server ----
    "all_ones": A("many", "1000", hang="all-ones:after=28500", stop=(KILL, "0xffffffff, 0xffffffff")),
    "all_ones_boot": A("boot", hang="all-ones:after=5000"),
    "config_retry": A("boot", hang="config-retry"),
    "refused": A("boot", hang="refuse:MAP_SYSMEM_FD:no free slots:after=20"),
    "refused_bar": A("boot", hang="refuse:MAP_BAR"),
    "driver_gone": A("boot", hang="exit:after=5000"),
    "driver_gone_at_work": A("many", "1000", hang="exit:after=28000"),
    "blocked": A("boot", hang="slow:60000000:after=3000", stop=(KILL, 6.0)),
    "ctrl_c_in_call": A("shift", "41", stop=(KILL, "interrupted+1.5")),
    "second_client": A("many", "10", hang="sdma-stall:after=3", timeout_ms=4000, second=True),
    "server_has_another": A("boot", holder=("wait",), stop=(KILL, 6.0)),
    "region_cap": A("regions", "200"),
    "killed": A("wait", stop=(KILL, '"ready"')),
}


class Keeper:
    def __init__(self, tools, python, animal):
        self.tools, self.python, self.animal = tools, python, animal
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="zoo"))
        self.environment = {k: v for k, v in os.environ.items() if k not in (
            "REMOTE", "APL_REMOTE_SOCK", "AM_RESET", "DEBUG")}
        self.environment.update(TMPDIR=str(self.folder), PYTHONUNBUFFERED="1", DEV="AMD")
        file = self.folder / "weights"
        file.write_bytes(bytes(range(256)) * (SLOT_FILE // 256))
        self.arguments = {"{file}": str(file)}
        self.running = []

    def process(self, name, command, **environment):
        one = Process(command, {**self.environment, **environment}, self.folder / f"{name}.log")
        self.running.append(one)
        return one

    def client_command(self, action):
        words = [self.arguments.get(word, word) for word in action]
        return [self.python, CLIENT, *words]

    def where(self, address):
        target = address.split(":", 1)[1] if ":" in address else address
        return {"REMOTE": target} if self.animal.tcp else {"APL_REMOTE_SOCK": target}

    def start_card(self):
        server = "tcp:127.0.0.1:0" if self.animal.tcp else self.folder / "card.sock"
        card = self.process("sim", [self.tools["rpcreplay"], "sim", "--listen", server, "--quiet",
                                    *self.animal.sim])
        until(lambda: "listens on" in card.output() or card.process.poll() is not None,
              "the simulated card listens")
        expect(card.process.poll() is None, card.output())
        self.address = card.output().split("listens on ")[1].split()[0]

    def trace(self, out):
        """Records the trace into `out`."""
        animal = self.animal
        self.start_card()
        for i, action in enumerate(animal.before):
            self.process(f"before{i}", self.client_command(action),
                         **self.where(self.address)).wait()
        if animal.holder:
            # The driver's lock keeps honest clients apart: this one looks for it elsewhere.
            (self.folder / "elsewhere").mkdir()
            holder = self.process("holder", self.client_command(animal.holder),
                                  **self.where(self.address),
                                  TMPDIR=str(self.folder / "elsewhere"))
            until(lambda: '"boot"' in holder.output(), "the first client has booted", 60)
        if animal.again or animal.second:
            self.serve(out)
        else:
            command = [self.tools["rpcproxy"], "run", "--upstream", self.address, "-o", out]
            if not animal.tcp:
                command += ["--listen", f"unix:{self.folder}/p.sock"]
            run = self.process("client", [*command, "--", *self.client_command(animal.client)],
                               **animal.env)
            self.stop_client(run)
            run.wait(60)

    def serve(self, out):
        animal, listen = self.animal, f"unix:{self.folder}/p.sock"
        proxy = self.process("proxy", [self.tools["rpcproxy"], "serve", "--listen", listen,
                                       "--upstream", self.address, "-o", out])
        until(lambda: (self.folder / "p.sock").exists(), "the proxy listens")
        first = self.process("client", self.client_command(animal.client),
                             **self.where(listen), **animal.env)
        if animal.second:
            until(lambda: '"boot"' in first.output(), "the first client has booted", 60)
            # The lock of the driver keeps honest clients apart; this one is not of tinygrad.
            import socket
            other = socket.socket(socket.AF_UNIX)
            other.connect(f"{self.folder}/p.sock")
            other.sendall(bytes([3]) + bytes(16) + b"\4" + bytes(15))  # CFG_READ 0, 4 bytes
            until(lambda: "waiting for" in proxy.output(), "the second client waits", 20)
            other.close()
        first.wait(60)
        for i, action in enumerate(animal.again):
            self.process(f"again{i}", self.client_command(action), **self.where(listen),
                         **animal.env).wait(60)
        time.sleep(0.3)
        proxy.stop()

    def stop_client(self, run):
        """Ends the client of `run` as the animal says: at once, or some time after a line."""
        if not self.animal.stop:
            return
        how, when = self.animal.stop
        if isinstance(when, float):
            time.sleep(when)
        else:
            text, _, more = when.partition("+")
            text = {"booted": '"boot"', "failed": '"failed"',
                    "interrupted": '"interrupted"'}.get(text, text)
            until(lambda: text in run.output() or run.process.poll() is not None, text, 60)
            time.sleep(float(more or 0))
        started = [one for one in facts(run.output()) if one.get("event") == "start"]
        expect(started and run.process.poll() is None, run.output())
        os.kill(started[0]["pid"], how)

    def close(self):
        for one in self.running:
            one.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self):
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}"
                         for log in sorted(self.folder.glob("*.log")))


def verdict_of(rpcdecode, trace):
    run = subprocess.run([rpcdecode, "--format", "json", str(trace)], capture_output=True,
                         text=True)
    return json.loads(run.stdout)["verdict"], run.returncode


def problems(verdict, code, wanted):
    """What is not as expected.json says."""
    found = []
    for key in ("kind", "rule"):
        if key in wanted and verdict.get(key) != wanted[key]:
            found.append(f"{key} is {verdict.get(key)}, expected {wanted[key]}")
    if not (verdict["advice"] or "").startswith(wanted["advice"]):
        found.append(f"advice is '{verdict['advice']}', expected '{wanted['advice']}'")
    for part in wanted.get("summary", []):
        if part not in verdict["summary"]:
            found.append(f"'{part}' is not in the summary '{verdict['summary']}'")
    if verdict["confidence"] not in wanted["confidence"]:
        found.append(f"confidence is {verdict['confidence']}, expected {wanted['confidence']}")
    if len(verdict["summary"]) > 100:
        found.append(f"the summary has {len(verdict['summary'])} columns")
    everything = json.dumps(verdict)
    for part in wanted.get("says", []):
        if part not in everything:
            found.append(f"'{part}' is nowhere in the verdict")
    if code != wanted["exit"]:
        found.append(f"exit code {code}, expected {wanted['exit']}")
    return found


def main():
    parser = argparse.ArgumentParser()
    for tool in ("rpcreplay", "rpcproxy", "venv"):
        parser.add_argument(f"--{tool}", required=True)
    parser.add_argument("--rpcdecode")
    parser.add_argument("--pack")
    parser.add_argument("--out", default=".")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    python = venv(options.venv)
    if python is None:
        print("SKIPPED: PyPI is out of reach, so tinygrad cannot be installed.")
        return SKIP
    tools = {name: os.path.abspath(getattr(options, name)) for name in ("rpcreplay", "rpcproxy")}
    expected = json.loads((HERE / "expected.json").read_text())
    failed = []
    for name in options.names or ANIMALS:
        out = pathlib.Path(options.out).resolve() / f"{name}.pb"
        out.unlink(missing_ok=True)
        keeper = Keeper(tools, python, ANIMALS[name])
        try:
            keeper.trace(out)
            if options.rpcdecode:
                verdict, code = verdict_of(options.rpcdecode, out)
                wrong = problems(verdict, code, expected[name]) if name in expected else ["unknown"]
                print(f"{name}: {verdict['kind']} {verdict.get('rule')} {verdict['confidence']}: "
                      f"{verdict['summary']} / {(verdict['advice'] or '')[:40]}")
                for one in wrong:
                    print(f"    WRONG: {one}")
                if wrong:
                    failed.append(name)
            if options.pack:
                subprocess.run([options.pack, "pack", out, HERE / "traces" / f"{name}.zst"],
                               check=True)
        except Failure as failure:
            print(f"{name}: FAILED: {failure}\n{keeper.logs()}")
            failed.append(name)
        finally:
            keeper.close()
    if failed:
        print("wrong:", " ".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
