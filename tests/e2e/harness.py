"""Starts the programs of an end-to-end test in a folder of their own and looks at what they did."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TINYGRAD = "0.14.0"
SKIP = 77  # ctest: SKIP_RETURN_CODE
DEADLINE = 120  # seconds for any one client


class Failure(AssertionError):
    pass


def expect(condition, message):
    if not condition:
        raise Failure(message)


def equal(got, wanted, what):
    expect(got == wanted, f"{what}: {got!r}, expected {wanted!r}")


# ---- the virtual environment --------------------------------------------------------------------


def _has_tinygrad(python):
    probe = "import importlib.metadata as m; print(m.version('tinygrad'))"
    run = subprocess.run([python, "-c", probe], capture_output=True, text=True)
    return run.returncode == 0 and run.stdout.strip() == TINYGRAD


def _index_reachable(python):
    run = subprocess.run([python, "-m", "pip", "config", "get", "global.index-url"],
                         capture_output=True, text=True)
    configured = run.stdout.strip() if run.returncode == 0 else ""
    url = os.environ.get("PIP_INDEX_URL") or configured or "https://pypi.org/simple"
    try:
        with urllib.request.urlopen(url.rstrip("/") + "/tinygrad/", timeout=20) as page:
            return page.status == 200
    except OSError:
        return False


def venv(folder):
    """The Python of a virtual environment with tinygrad, made in `folder` if need be. None: PyPI is
    out of reach."""
    given = os.environ.get("TINYGPU_TEST_VENV")
    if given:
        python = f"{given}/bin/python"
        expect(_has_tinygrad(python), f"TINYGPU_TEST_VENV={given} has no tinygrad {TINYGRAD}")
        return python
    python = f"{folder}/bin/python"
    if os.path.exists(python) and _has_tinygrad(python):
        return python
    # One case found out just now that there is no network: the others need not wait for it again.
    unreachable = pathlib.Path(f"{folder}.unreachable")
    if unreachable.exists() and time.time() - unreachable.stat().st_mtime < 300:
        return None
    making = f"{folder}.{os.getpid()}"
    shutil.rmtree(making, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", making], capture_output=True, text=True)
    expect(made.returncode == 0, f"python -m venv failed (python3-venv installed?): {made.stdout}")
    python = f"{making}/bin/python"
    install = subprocess.run([python, "-m", "pip", "install", "--disable-pip-version-check", "-q",
                              f"tinygrad=={TINYGRAD}"], capture_output=True, text=True)
    if install.returncode != 0:
        reachable = _index_reachable(python)
        shutil.rmtree(making, ignore_errors=True)
        expect(not reachable, f"pip install tinygrad=={TINYGRAD}: {install.stderr}")
        unreachable.touch()
        return None
    # Scripts in bin/ name the folder they were made in; only bin/python is used, which does not.
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(making, folder)
    return f"{folder}/bin/python"


# ---- processes ----------------------------------------------------------------------------------


class Process:
    def __init__(self, command, environment, log):
        self.log = pathlib.Path(log)
        self.file = open(log, "wb")
        self.process = subprocess.Popen([str(c) for c in command], env=environment,
                                        stdin=subprocess.DEVNULL, stdout=self.file,
                                        stderr=subprocess.STDOUT)

    def output(self):
        return self.log.read_text(errors="replace")

    def wait(self, deadline=DEADLINE):
        try:
            return self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.stop(signal.SIGKILL)
            raise Failure(f"did not end within {deadline} s:\n{self.output()}") from None

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(20)


def until(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.02)


class Run:
    """A simulated card, a proxy in front of it (if there is one), and clients one after the other."""

    def __init__(self, tools, python, sim=(), tcp=False, proxy_options=()):
        self.tools, self.python, self.tcp = tools, python, tcp
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rpce2e"))
        self.environment = {k: v for k, v in os.environ.items() if k not in (
            "REMOTE", "APL_REMOTE_SOCK", "AM_RESET", "DEBUG", "HCQDEV_WAIT_TIMEOUT_MS")}
        # Keeps tinygrad's lock files and our sockets apart from those of other runs.
        self.environment.update(TMPDIR=str(self.folder), PYTHONUNBUFFERED="1", DEV="AMD")
        self.clients = 0
        self.proxy = None
        self.trace = self.folder / "trace.pb"
        self.report_path = self.folder / "report.json"
        server = "tcp:127.0.0.1:0" if tcp else self.folder / "card.sock"
        self.sim = Process([tools["rpcreplay"], "sim", "--listen", server, "--report",
                            self.report_path, *sim], self.environment, self.folder / "sim.log")
        until(lambda: "listens on" in self.sim.output() or self.sim.process.poll() is not None,
              "the simulated card listens")
        expect(self.sim.process.poll() is None, self.sim.output())
        self.address = self.sim.output().split("listens on ")[1].split()[0]
        if tools.get("rpcproxy"):
            self._start_proxy(proxy_options)

    def _start_proxy(self, options):
        listen = "tcp:127.0.0.1:0" if self.tcp else f"unix:{self.folder}/proxy.sock"
        if self.tcp:
            listen = f"tcp:127.0.0.1:{_free_port()}"
        self.proxy = Process([self.tools["rpcproxy"], "serve", "--listen", listen, "--upstream",
                              self.address, "-o", self.trace, *options], self.environment,
                             self.folder / "proxy.log")
        if self.tcp:
            port = int(listen.rsplit(":", 1)[1])
            until(lambda: _listening(port) or self.proxy.process.poll() is not None,
                  "the proxy listens")
        else:
            # Not the socket's file: that is there a moment before anybody listens.
            until(lambda: "listening on" in self.proxy.output() or
                  self.proxy.process.poll() is not None, "the proxy listens")
        expect(self.proxy.process.poll() is None, self.proxy.output())
        self.address = listen

    def start(self, action, *arguments, **environment):
        target = self.address.split(":", 1)[1]
        where = {"REMOTE": target} if self.tcp else {"APL_REMOTE_SOCK": target}
        self.clients += 1
        log = self.folder / f"client{self.clients}.log"
        return Process([self.python, HERE / "client.py", action, *arguments],
                       {**self.environment, **where, **environment}, log)

    def client(self, action, *arguments, status=0, **environment):
        """Runs a client to its end; gives the JSON objects that it printed, and all it printed."""
        process = self.start(action, *arguments, **environment)
        code = process.wait()
        output = process.output()
        if status is not None:
            equal(code, status, f"exit status of client {action}; it said:\n{output}\n")
        return facts(output), output

    def finish(self):
        """Stops everything; gives the simulator's report."""
        if self.proxy:
            self.proxy.stop()
        code = self.sim.stop()
        equal(code, 0, f"exit status of the simulator; it said:\n{self.sim.output()}\n")
        return json.loads(self.report_path.read_text())

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for process in (self.proxy, self.sim):
            if process:
                process.stop(signal.SIGKILL)
        if error is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            print(f"logs are in {self.folder}", file=sys.stderr)
            for log in sorted(self.folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}", file=sys.stderr)


def _free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _listening(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = pathlib.Path(table).read_text().splitlines()[1:]
        except OSError:
            time.sleep(1)  # macOS: no such table; give it its time
            return True
        for line in lines:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.rsplit(":", 1)[1], 16) == port:
                return True
    return False


def facts(output):
    found = []
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def event(found, name):
    for one in found:
        if one.get("event") == name:
            return one
    raise Failure(f"no event {name} in {found}")


def check_copies(found, sizes):
    copies = [one for one in found if one.get("event") == "copied"]
    equal([one["size"] for one in copies], list(sizes), "sizes copied")
    for one in copies:
        equal(one["got"], one["sent"], f"content of {one['size']} bytes")
