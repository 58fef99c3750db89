"""Traces played again: a server for the client that was recorded, a client for the simulated card.

python replay_cases.py --rpcreplay PATH --rpcproxy PATH --rpcdecode PATH --venv FOLDER CASE

Cases named native_* use `rpcreplay client`; the others the stock tinygrad driver.
"""
import argparse
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys

from harness import (HERE, SKIP, Failure, Process, Run, check_copies, equal, expect, facts, until,
                     venv)

SIZES = ["4096", "65536", "300000"]


class Stage:
    """A trace, and what plays it."""

    def __init__(self, tools, python, native):
        self.tools, self.python, self.native = tools, python, native
        self.kept = []
        self.others = []  # processes beside those of `kept`

    def record(self, sim=(), tcp=False, status=0, **environment):
        """A session on the simulated card through the proxy; gives (Run, trace, client's output)."""
        for _ in range(3):
            run = Run(self.tools, self.python, sim=sim, tcp=tcp, proxy_options=["--bodies", "full"])
            self.kept.append(run)
            code, output = self.client(run, run.address, environment)
            equal(code, status, f"exit status of the recorded client; it said:\n{output}\n")
            until(lambda: " done: " in run.proxy.output(), "the proxy has seen the client go")
            report = run.finish()
            # On a machine that is busy beyond measure the proxy rather loses a record than waits.
            listing = self.call("drive", run.trace, "--list")[1]
            if "were not recorded" not in listing:
                return run, report, output
        raise Failure("the proxy lost records three times")

    def client(self, run, address, environment):
        where = {"REMOTE" if run.tcp else "APL_REMOTE_SOCK": address.split(":", 1)[-1]}
        if self.native:
            command = [self.tools["rpcreplay"], "client", "--connect", address, "--copy", "65536",
                       "--repeat", "2", "--timeout-ms", environment.get("WAIT_MS", "30000")]
        else:
            command = [self.python, HERE / "client.py", "copy", *SIZES]
            if "WAIT_MS" in environment:
                where["HCQDEV_WAIT_TIMEOUT_MS"] = environment["WAIT_MS"]
        run.clients += 1
        process = Process(command, {**run.environment, **where},
                          run.folder / f"client{run.clients}.log")
        return process.wait(), process.output()

    def serve(self, run, *options):
        """Starts `rpcreplay serve` of the run's trace; gives (process, address)."""
        listen = "tcp:127.0.0.1:0" if run.tcp else f"unix:{run.folder}/serve.sock"
        server = Process([self.tools["rpcreplay"], "serve", run.trace, "--listen", listen,
                          "--accept-timeout", "60", *options], run.environment,
                         run.folder / "serve.log")
        self.others.append(server)
        until(lambda: " on unix:" in server.output() or " on tcp:" in server.output()
              or server.process.poll() is not None, "the trace is served")
        expect(server.process.poll() is None, server.output())
        return server, re.search(r" on ((?:unix|tcp):\S+)", server.output()).group(1)

    def call(self, *arguments):
        done = subprocess.run([self.tools["rpcreplay"], *map(str, arguments)], capture_output=True,
                              text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def close(self, good):
        for process in self.others:  # of a case that failed
            process.stop(signal.SIGKILL)
        for run in self.kept:
            for process in (run.proxy, run.sim):
                if process:
                    process.stop(signal.SIGKILL)
            if good:
                shutil.rmtree(run.folder, ignore_errors=True)
            else:
                print(f"logs are in {run.folder}", file=sys.stderr)


def serve(stage, tcp=False):
    """The driver boots, copies and finishes against its own earlier trace: every call as recorded
    (but for the number of polls), and the same data comes back."""
    run, _, before = stage.record(tcp=tcp)
    server, address = stage.serve(run, "--mode", "strict", "--polls", "any")
    code, output = stage.client(run, address, {})
    said = f"\nclient:\n{output}\nserver:\n{server.output()}\n"
    equal(code, 0, "exit status of the client" + said)
    equal(server.wait(20), 0, "exit status of the server" + said)
    if not stage.native:
        check_copies(facts(output), [int(size) for size in SIZES])
        equal([one["got"] for one in facts(output) if one.get("event") == "copied"],
              [one["got"] for one in facts(before) if one.get("event") == "copied"], "data")
    expect("client done:" in server.output(), said)


def hang(stage):
    """A session that hung hangs again, for the same reason, without the card."""
    run, _, before = stage.record(sim=["--hang", "sdma-stall:after=2"], status=1, WAIT_MS="2000")
    server, address = stage.serve(run, "--mode", "lenient")
    code, output = stage.client(run, address, {"WAIT_MS": "2000"})
    said = f"\nclient:\n{output}\nserver:\n{server.output()}\n"
    equal(code, 1, "exit status of the client" + said)
    equal(server.wait(20), 0, "exit status of the server" + said)
    expect("the device hung on doorbell" in server.output(), said)
    wanted = re.search(r"the signal is not set to \d+, but \d+", before)
    expect(wanted and wanted.group(0) in output, f"not the same hang: {wanted}" + said)


def drive(stage, tcp=False):
    """A trace driven into the simulated card brings every recorded reply again, and the card does the
    same work. The card proves to be simulated: no option is needed."""
    run, report, _ = stage.record(tcp=tcp)
    again = Run({"rpcreplay": stage.tools["rpcreplay"]}, stage.python, tcp=tcp)
    stage.kept.append(again)
    code, output = stage.call("drive", run.trace, "--upstream", again.address)
    equal(code, 0, f"exit status of drive; it said:\n{output}\n")
    second = again.finish()
    for name in ("doorbells", "sdma_copies", "sdma_bytes", "sdma_fences", "psp_commands"):
        equal(second["counters"][name], report["counters"][name], f"counter {name}")
    expect(second["counters"]["sdma_copies"] > 0, "the card copied")


def back_to_back(stage):
    """serve and drive of one trace, the proxy between them: the new trace equals the old one."""
    run, _, _ = stage.record()
    server, address = stage.serve(run, "--polls", "any")
    trace = run.folder / "again.pb"
    proxy = Process([stage.tools["rpcproxy"], "serve", "--listen", f"unix:{run.folder}/between.sock",
                     "--upstream", address, "-o", trace, "--bodies", "full"], run.environment,
                    run.folder / "between.log")
    stage.others.append(proxy)
    until(lambda: "listening on" in proxy.output(), "the proxy listens")
    code, output = stage.call("drive", run.trace, "--upstream", f"unix:{run.folder}/between.sock",
                              "--allow-writes", "--allow-reset")
    equal(code, 0, f"exit status of drive; it said:\n{output}\nserver:\n{server.output()}\n")
    equal(server.wait(20), 0, f"exit status of the server:\n{server.output()}\n")
    until(lambda: " done: " in proxy.output(), "the proxy has seen the client go")
    proxy.stop()
    done = subprocess.run([stage.tools["rpcdecode"], "diff", run.trace, trace], capture_output=True,
                          text=True, timeout=60)
    equal(done.returncode, 0, f"exit status of rpcdecode diff:\n{done.stdout}{done.stderr}\n")
    expect("no difference" in done.stdout, done.stdout)


def guarded(stage):
    """A server that does not prove to be simulated is sent nothing: the calls are listed."""
    run, _, _ = stage.record()
    # A proxy without a server behind it takes the connection and closes it: no proof.
    log = run.folder / "none.log"
    proxy = Process([stage.tools["rpcproxy"], "serve", "--listen", f"unix:{run.folder}/none.sock",
                     "--upstream", f"unix:{run.folder}/nobody.sock", "-o", run.folder / "none.pb"],
                    run.environment, log)
    stage.others.append(proxy)
    until(lambda: "listening on" in proxy.output(), "the proxy listens")
    code, output = stage.call("drive", run.trace, "--upstream", f"unix:{run.folder}/none.sock",
                              "--timeout", "5")
    proxy.stop()
    equal(code, 2, f"exit status of drive; it said:\n{output[-2000:]}\n")
    expect("nothing was sent" in output and "did not prove" in output, output[-2000:])
    expect("RESIZE_BAR bar0" in output, output[:2000])


def interfered(stage, options, status, **environment):
    """A client behind a proxy that does more than look; gives (what it said, simulator's report,
    rpcdecode's report)."""
    run = Run(stage.tools, stage.python, proxy_options=options)
    stage.kept.append(run)
    code, output = stage.client(run, run.address, environment)
    expect(code in status, f"exit status {code} of the client; it said:\n{output}\n")
    until(lambda: " done: " in run.proxy.output(), "the proxy has seen the client go")
    report = run.finish()
    done = subprocess.run([stage.tools["rpcdecode"], run.trace, "--format", "json"],
                          capture_output=True, text=True, timeout=60)
    return output, report, json.loads(done.stdout)


def read_only(stage):
    """The card is the same after a driver that tried to boot it."""
    output, report, decoded = interfered(stage, ["--read-only"], (1, 3))
    for name in ("doorbells", "psp_commands", "sdma_copies", "resets"):
        equal(report["counters"][name], 0, f"counter {name}; the client said:\n{output}\n")
    expect(decoded["proxy"]["guarded"] > 0, decoded["proxy"])
    expect("--read-only" in decoded["verdict"]["summary"], decoded["verdict"])


def inject(stage):
    """Faults on demand in the driver's own session: an error text, a lost doorbell."""
    output, _, decoded = interfered(stage, ["--inject", "MAP_BAR:bar=5:error=no BAR 5 today"],
                                     (1, 3))
    expect("no BAR 5 today" in output, output)
    equal([e["text"] for e in decoded["proxy"]["entries"]],
          ["--inject MAP_BAR:bar=5:error=no BAR 5 today"], "entries")
    lost = "MMIO_WRITE:bar=2:when=2:drop"
    output, report, decoded = interfered(stage, ["--inject", lost], (1, 3), WAIT_MS="2000")
    expect("Wait timeout: 2000 ms!" in output, output)
    equal(decoded["session"]["doorbells"], report["counters"]["doorbells"], "doorbells that arrived")
    expect(lost in decoded["verdict"]["summary"], decoded["verdict"])


def short(stage):
    """A body that the proxy had cut short is served as short as it was, and the stream stays in step."""
    rule = "MMIO_READ:bar=0:when=1:short=100"
    run = Run(stage.tools, stage.python, proxy_options=["--bodies", "full", "--inject", rule])
    stage.kept.append(run)

    def talk(address):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(30)
            client.connect(address.split(":", 1)[1])
            got = b""
            # MAP_BAR 0, MMIO_READ of 30,000 of its bytes, CFG_READ of the vendor, MMIO_READ of 8 bytes.
            for command, arguments, size in ((1, (0, 0, 0), 17), (6, (0, 30000, 0), 17 + 100),
                                             (3, (0, 2, 0), 17), (6, (64, 8, 0), 17 + 8)):
                client.sendall(struct.pack("<BIIQQQ", command, 0, 0, *arguments))
                part = b""
                while len(part) < size:
                    more = client.recv(size - len(part))
                    expect(more, f"the connection ended after {part!r}")
                    part += more
                got += part
            return got

    recorded = talk(run.address)
    until(lambda: " done: " in run.proxy.output(), "the proxy has seen the client go")
    run.finish()
    equal(struct.unpack_from("<BQ", recorded, 17), (0, 30000), "the header says all of it")
    equal(struct.unpack_from("<BQ", recorded, 17 + 117), (0, 0x1002), "the answer behind it")
    server, address = stage.serve(run)
    played = talk(address)
    said = f"\nserver:\n{server.output()}\n"
    equal(server.wait(20), 0, "exit status of the server" + said)
    equal(played, recorded, "bytes" + said)


def autopsy(stage):
    """After a stall the proxy reads the card's state, and the client notices nothing."""
    run = Run(stage.tools, stage.python, sim=["--hang", "sdma-stall:after=2"],
              proxy_options=["--autopsy", "--autopsy-after", "1"])
    stage.kept.append(run)
    code, output = stage.client(run, run.address, {"WAIT_MS": "4000"})
    equal(code, 1, f"exit status of the client; it said:\n{output}\n")
    expect("Wait timeout: 4000 ms!" in output, output)
    until(lambda: " done: " in run.proxy.output(), "the proxy has seen the client go")
    run.finish()
    done = subprocess.run([stage.tools["rpcdecode"], run.trace, "--format", "json"],
                          capture_output=True, text=True, timeout=60)
    decoded = json.loads(done.stdout)
    read = {e["text"]: e for e in decoded["proxy"]["entries"] if e["kind"] == "autopsy"}
    pointer = [e for text, e in read.items() if "stall" in text and text.endswith("QUEUE0_RB_RPTR")]
    expect(pointer and all(e["answered"] == 1 for e in pointer), list(read))
    expect(any("after the client has left" in text for text in read), list(read))
    equal(decoded["verdict"]["kind"], "hang", "verdict")
    expect("SDMA0 stuck" in decoded["verdict"]["summary"], decoded["verdict"])
    equal(decoded["session"]["unanswered_total"], 0, "unanswered")


CASES = {
    "serve": lambda stage: serve(stage),
    "serve_tcp": lambda stage: serve(stage, tcp=True),
    "hang": hang,
    "drive": lambda stage: drive(stage),
    "drive_tcp": lambda stage: drive(stage, tcp=True),
    "back_to_back": back_to_back,
    "native_serve": lambda stage: serve(stage),
    "native_drive": lambda stage: drive(stage),
    "native_back_to_back": back_to_back,
    "native_guarded": guarded,
    "read_only": read_only,
    "inject": inject,
    "autopsy": autopsy,
    "native_read_only": read_only,
    "native_inject": inject,
    "native_short": short,
    "native_autopsy": autopsy,
}


def main():
    parser = argparse.ArgumentParser()
    for tool in ("rpcreplay", "rpcproxy", "rpcdecode"):
        parser.add_argument(f"--{tool}", required=True, type=os.path.abspath)
    parser.add_argument("--venv", required=True)
    parser.add_argument("case", choices=CASES)
    options = parser.parse_args()
    native = options.case.startswith("native_")
    tools = {name: getattr(options, name) for name in ("rpcreplay", "rpcproxy", "rpcdecode")}
    good = False
    stage = None
    try:
        python = sys.executable if native else venv(options.venv)
        if python is None:
            print("SKIPPED: PyPI is out of reach, so tinygrad cannot be installed. Set "
                  "TINYGPU_TEST_VENV to a virtual environment that has it.")
            return SKIP
        stage = Stage(tools, python, native)
        CASES[options.case](stage)
        good = True
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
    finally:
        if stage:
            stage.close(good)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
