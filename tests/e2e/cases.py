"""The end-to-end cases: the stock tinygrad driver on the simulated card, through the proxy.

python cases.py --rpcreplay PATH [--rpcproxy PATH] --venv FOLDER CASE
"""
import argparse
import os
import pathlib
import signal
import sys

from harness import SKIP, Failure, Run, check_copies, equal, event, expect, until, venv

# Registers the driver reads only to change a field, and nothing depends on: the model has no reset
# value for them. Anything else that turns up as a gap is one.
READ_MODIFY_WRITE = {
    "regCP_INT_CNTL", "regCP_ME_CNTL", "regCP_RB_WPTR_POLL_CNTL",
    "regGCMC_VM_MX_L1_TLB_CNTL", "regGCVM_L2_CNTL", "regGCVM_L2_CNTL2",
    "regGCVM_L2_PROTECTION_FAULT_CNTL2", "regGRBM_CNTL", "regHDP_MEM_POWER_CTRL",
    "regIH_INT_FLOOD_CNTL", "regIH_MSI_STORM_CTRL", "regIH_STORM_CLIENT_LIST_CNTL",
    "regMMMC_VM_MX_L1_TLB_CNTL", "regMMVM_L2_BANK_SELECT_RESERVED_CID2", "regMMVM_L2_CNTL",
    "regMMVM_L2_CNTL2", "regMMVM_L2_PROTECTION_FAULT_CNTL2", "regRCC_DEV0_EPF2_STRAP2",
    "regRLC_CGCG_CGLS_CTRL", "regRLC_CGTT_MGCG_OVERRIDE", "regRLC_SRM_CNTL",
    "regTCP_CNTL",
}
# Counters that stay 0 when nothing is wrong.
QUIET = ["refused", "unknown_commands", "writes_dropped", "short_headers", "poison", "psp_rejected",
         "smu_rejected", "interrupts", "interrupts_dropped", "doorbells_gated",
         "doorbells_unclaimed", "sdma_bad_packets", "sdma_skipped", "compute_bad_packets",
         "compute_skipped", "page_faults", "dma_blocked", "dma_unanswered", "mmio_dropped"]

CARDS = {"navi31": ("gfx1100", 24560, 96), "navi48": ("gfx1201", 16304, 64)}


def check_report(report, **nonzero):
    equal(report["missing"], [], "register names the simulator looked for in vain")
    gaps = {gap["name"] for gap in report["gaps"]}
    equal(gaps - READ_MODIFY_WRITE, set(), "registers the simulator does not model")
    for name in QUIET:
        if name not in nonzero:
            equal(report["counters"][name], 0, f"counter {name}")
    for name, wanted in nonzero.items():
        equal(report["counters"][name], wanted, f"counter {name}")


def boot(start, asic, bar0):
    """Full boot, both cards, both BAR sizes: what the driver finds is the card that was asked for."""
    arch, vram, units = CARDS[asic]
    with start(sim=["--asic", asic, "--bar0", bar0]) as run:
        found, _ = run.client("copy", "65536")
        booted = event(found, "boot")
        equal(booted["arch"], arch, "arch")
        equal(booted["partial"], False, "partial boot")
        equal(booted["large_bar"], bar0 == "full", "large BAR")
        equal(booted["vram"], vram << 20, "VRAM")
        equal(booted["props"]["simd_count"], 2 * units, "SIMD units")
        equal(booted["props"]["num_xcc"], 1, "XCCs")
        expect(booted["seconds"] < 30, "boot takes longer than any poll of the driver allows")
        check_copies(found, [65536])
        check_report(run.finish(), resets=0)


def second_start(start):
    """A clean end leaves the card for a partial boot: no reset, no firmware."""
    with start() as run:
        first, _ = run.client("copy", "65536")
        second, _ = run.client("copy", "65536")
        equal([event(one, "boot")["partial"] for one in (first, second)], [False, True], "partial")
        check_copies(second, [65536])
        report = run.finish()
        equal(report["clients"], 2, "clients")
        # One bootloader and one set of firmware images: those of the first boot.
        check_report(report, resets=0, psp_commands=23)


def killed(start):
    """kill -9, then start: the driver finds the card in use and resets it."""
    with start() as run:
        victim = run.start("wait")
        until(lambda: '"ready"' in victim.output() or victim.process.poll() is not None,
              "the first client is at work", 60)
        victim.stop(signal.SIGKILL)
        found, _ = run.client("copy", "65536")
        equal(event(found, "boot")["partial"], False, "partial boot")
        check_copies(found, [65536])
        check_report(run.finish(), resets=1)


def reset_asked(start):
    """AM_RESET=1 boots in full although the last session ended well."""
    with start() as run:
        run.client("boot")
        found, _ = run.client("copy", "4096", AM_RESET="1")
        equal(event(found, "boot")["partial"], False, "partial boot")
        check_copies(found, [4096])
        check_report(run.finish(), resets=1)


def sizes(start):
    """Up and down, byte-exact: 1 MiB, 64 MiB, and sizes that are no round number."""
    wanted = [1 << 20, 64 << 20, 1, 4095, (2 << 20) + 4097]
    with start() as run:
        found, _ = run.client("copy", *map(str, wanted))
        check_copies(found, wanted)
        report = run.finish()
        # Staging buffers of 2 MiB: 1 + 32 + 1 + 1 + 2 copies each way.
        check_report(report, sdma_copies=74, sdma_bytes=2 * sum(wanted))


def many(start):
    """More copies than there are staging buffers."""
    with start() as run:
        found, _ = run.client("many", "100")
        check_copies(found, [1 << 16])
        check_report(run.finish(), sdma_copies=101)


def disk(start):
    """DISK -> AMD: the staged path (4096 bytes and more) and the plain one."""
    with start() as run:
        paths = []
        for size in (4095, 4096, 5_000_000):
            path = run.folder / f"file{size}"
            path.write_bytes(bytes((i * 131 + i // 4096) & 0xFF for i in range(size)))
            paths.append(str(path))
        found, _ = run.client("disk", *paths)
        check_copies(found, [4095, 4096, 5_000_000])
        check_report(run.finish())


def barrier(start):
    """Control packets of the compute queue."""
    with start() as run:
        found, _ = run.client("barrier", "5")
        timeline = event(found, "timeline")
        equal(timeline["value"], timeline["expected"], "timeline")
        check_report(run.finish(), compute_signals=5, compute_dispatches=0)


def tcp(start, bar0="full"):
    """The same driver over TCP: memory regions go over the wire."""
    with start(tcp=True, sim=["--bar0", bar0]) as run:
        first, _ = run.client("copy", "1048576")
        check_copies(first, [1 << 20])
        second, _ = run.client("copy", "4096")
        check_copies(second, [4096])
        equal(event(second, "boot")["partial"], True, "partial boot")
        # serve.py refuses to resize what the host has no room for; the driver goes on.
        check_report(run.finish(), resets=0, refused=2 if bar0 == "256M" else 0)


def sdma_stall(start):
    """A wedged SDMA engine ends in the client's own time-out, and outlives a mere queue set-up."""
    with start(sim=["--hang", "sdma-stall:after=3:count=1"]) as run:
        found, output = run.client("many", "10", status=None, HCQDEV_WAIT_TIMEOUT_MS="2000")
        event(found, "boot")
        expect("Wait timeout: 2000 ms! (the signal is not set to 10, but 3)" in output, output)
        expect("Device hang detected" in output, output)
        # The first process ended by itself, so the engine was reset and the card is fine again.
        found, _ = run.client("copy", "65536")
        check_copies(found, [65536])
        report = run.finish()
        equal(report["hangs"], [{"name": "sdma-stall", "seen": 6, "struck": 1}], "hangs")


def page_fault(start):
    """A fault goes to the dummy page: the client notices nothing but wrong data, the next start
    resets the card."""
    with start(sim=["--hang", "page-fault:count=1"]) as run:
        found, _ = run.client("copy", "65536")
        copied = event(found, "copied")
        expect(copied["got"] != copied["sent"], "the copy went through in spite of the fault")
        found, _ = run.client("copy", "65536")
        equal(event(found, "boot")["partial"], False, "partial boot")
        check_copies(found, [65536])
        check_report(run.finish(), page_faults=1, interrupts=1, resets=1)


def smu_dead(start):
    """Mode-1 reset needs the SMU: without it the next full boot ends after its poll's 10 s."""
    with start(sim=["--hang", "smu-dead:after=41"]) as run:
        run.client("boot", status=None)
        _, output = run.client("boot", status=None, AM_RESET="1")
        expect("TimeoutError" in output or "timeout" in output.lower(), output)
        report = run.finish()
        expect(report["hangs"][0]["struck"] > 0, "the rule never struck")


def all_ones(start):
    """The card falls off the bus while the client is at work."""
    # Behind the boot's some 27,500 requests, within the copies' 3,000.
    with start(sim=["--hang", "all-ones:after=28500"]) as run:
        client = run.start("many", "1000", HCQDEV_WAIT_TIMEOUT_MS="2000")
        # The driver takes an interrupt ring full of ones for thousands of interrupts.
        ones = "ctx=[0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff]"
        until(lambda: ones in client.output() or client.process.poll() is not None,
              "interrupts of all ones", 60)
        client.stop(signal.SIGKILL)
        expect(ones in client.output(), client.output())
        expect(run.finish()["hangs"][0]["struck"] > 0, "the rule never struck")


def refused(start):
    """No shared memory left: the client trips over the missing descriptor."""
    with start(sim=["--hang", "refuse:MAP_SYSMEM_FD:no free slots:after=20"]) as run:
        _, output = run.client("boot", status=1)
        expect("IndexError" in output, output)
        equal(run.finish()["hangs"], [{"name": "refuse", "seen": 21, "struck": 1}], "hangs")


def driver_gone(start):
    """The server ends in the middle: nothing answers, the client says so."""
    with start(sim=["--hang", "exit:after=5000"]) as run:
        _, output = run.client("boot", status=1)
        expect("Connection closed" in output or "Broken pipe" in output or
               "Connection reset" in output, output)
        equal(run.sim.wait(10), 0, "exit status of the server")


CASES = {
    "boot_navi31": lambda start: boot(start, "navi31", "full"),
    "boot_navi31_small_bar": lambda start: boot(start, "navi31", "256M"),
    "boot_navi48": lambda start: boot(start, "navi48", "full"),
    "boot_navi48_small_bar": lambda start: boot(start, "navi48", "256M"),
    "second_start": second_start,
    "killed": killed,
    "reset_asked": reset_asked,
    "sizes": sizes,
    "many": many,
    "disk": disk,
    "barrier": barrier,
    "tcp": tcp,
    "tcp_small_bar": lambda start: tcp(start, "256M"),
    "sdma_stall": sdma_stall,
    "page_fault": page_fault,
    "smu_dead": smu_dead,
    "all_ones": all_ones,
    "refused": refused,
    "driver_gone": driver_gone,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rpcreplay", required=True)
    parser.add_argument("--rpcproxy")
    parser.add_argument("--venv", required=True)
    parser.add_argument("case", choices=["setup", *CASES])
    options = parser.parse_args()
    try:
        python = venv(options.venv)
        if python is None:
            print("SKIPPED: PyPI is out of reach, so tinygrad cannot be installed. Set "
                  "TINYGPU_TEST_VENV to a virtual environment that has it.")
            return SKIP
        if options.case == "setup":
            return 0
        tools = {"rpcreplay": os.path.abspath(options.rpcreplay)}
        if options.rpcproxy and pathlib.Path(options.rpcproxy).exists():
            tools["rpcproxy"] = os.path.abspath(options.rpcproxy)
        CASES[options.case](lambda **how: Run(tools, python, **how))
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
