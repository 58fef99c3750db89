"""What a test lets tinygrad do: python client.py ACTION [ARGUMENT]. Prints JSON, one object a line.

Runs under the tinygrad of the test's virtual environment. Copies only: no kernel is compiled, so no
compiler is needed.
"""
import hashlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shim  # noqa: E402,F401  (before anything of tinygrad that opens a device)

from tinygrad import Device, Tensor, dtypes  # noqa: E402
from tinygrad.device import Buffer  # noqa: E402


def say(**facts):
    print(json.dumps(facts), flush=True)


def pattern(size, seed):
    """Bytes in which no two 4 KiB pages are alike."""
    block = b"".join(hashlib.sha512(f"{seed}:{i}".encode()).digest() for i in range(1024))
    out = bytearray()
    page = 0
    while len(out) < size:
        out += page.to_bytes(8, "little") + block[8:4096 + 8 * (page % 7)][:4088]
        page += 1
    return bytes(out[:size])


def digest(data):
    return hashlib.sha256(data).hexdigest()


def open_device():
    began = time.perf_counter()
    device = Device["AMD"]
    say(event="boot", seconds=time.perf_counter() - began, arch=device.arch,
        partial=device.iface.dev_impl.partial_boot, large_bar=device.iface.dev_impl.large_bar,
        vram=device.iface.dev_impl.vram_size, props=device.iface.props)
    return device


def new_buffer(size):
    return Buffer("AMD", size, dtypes.uint8).allocate()


def up(buffer, data):
    buffer.allocator._copyin(buffer._buf, memoryview(bytearray(data)))


def down(buffer):
    out = bytearray(buffer.nbytes)
    buffer.allocator._copyout(memoryview(out), buffer._buf)
    return bytes(out)


def copy(size):
    data = pattern(size, size)
    buffer = new_buffer(size)
    up(buffer, data)
    say(event="copied", size=size, sent=digest(data), got=digest(down(buffer)))


def submit_barrier(device):
    """As invalidate_caches() does it, ordered by the timeline, without waiting for it."""
    queue = device.hw_compute_queue_t()
    queue.wait(device.timeline_signal, device.timeline_value - 1).memory_barrier() \
         .signal(device.timeline_signal, device.next_timeline()).submit(device)


def leak(path, good):
    """A disk read fails once: its staging slot stays marked for ever, and the copies behind it find
    that out when the slot comes round again."""
    from tinygrad.runtime import ops_disk
    open_device()
    here, size = ops_disk.DiskAllocator._copyout, os.path.getsize(path)
    ops_disk.DiskDevice._tried_io_uring_init = True  # macOS has none either

    def copy_file():
        there = Tensor.empty(size, dtype=dtypes.uint8, device=f"disk:{path}")
        there.to("AMD").contiguous().realize()

    def broken(*_):
        raise OSError("read error")

    for i in range(int(good) + 40):
        ops_disk.DiskAllocator._copyout = broken if i == int(good) else here
        if i == int(good) + 1:
            Device["AMD"].synchronize()
        try:
            copy_file()
        except OSError as error:
            say(event="failed", text=str(error))


def shift(when):
    """Ctrl-C between a request and its answer: from then on the driver takes each answer for that of
    its next request."""
    from tinygrad.runtime.support.system import RemotePCIDevice
    device, buffer, left = open_device(), new_buffer(1 << 16), [int(when)]
    here = RemotePCIDevice._recvall

    def interrupted(*arguments):
        left[0] -= 1
        if left[0] == 0:
            say(event="interrupted")
            raise KeyboardInterrupt
        return here(*arguments)

    RemotePCIDevice._recvall = staticmethod(interrupted)
    for i in range(100):
        up(buffer, pattern(1 << 16, i))
    device.synchronize()


def submit_copy(device, to, source, size):
    """A copy on the card, ordered by the timeline, without waiting for it."""
    device.hw_copy_queue_t().wait(device.timeline_signal, device.timeline_value - 1) \
          .copy(to._buf, source._buf, size) \
          .signal(device.timeline_signal, device.next_timeline()).submit(device)


def ring(size, copies):
    """More copies than the SDMA ring, made small here, has room for: it wraps, and with an engine that
    stopped the driver waits for room without limit."""
    from tinygrad.runtime.ops_amd import AMDDevice, kfd
    here = AMDDevice.create_queue

    def create_queue(self, queue_type, ring_size, *rest, **named):
        sdma = queue_type == kfd.KFD_IOC_QUEUE_TYPE_SDMA
        return here(self, queue_type, int(size) if sdma else ring_size, *rest, **named)

    AMDDevice.create_queue = create_queue
    device = open_device()
    one, other = new_buffer(1 << 12), new_buffer(1 << 12)
    for _ in range(int(copies)):
        submit_copy(device, one, other, 1 << 12)
    device.synchronize()
    say(event="timeline", value=device.timeline_signal.value, expected=device.timeline_value - 1)


def gap():
    """An exception between taking a number of the timeline and submitting the work that signals it:
    what is submitted next waits for nobody."""
    device, buffer = open_device(), new_buffer(1 << 16)
    up(buffer, pattern(1 << 16, 0))
    here = device.hw_copy_queue_t.func._submit

    def broken(*_):
        device.hw_copy_queue_t.func._submit = here
        raise OSError("interrupted")

    device.hw_copy_queue_t.func._submit = broken
    try:
        up(buffer, pattern(1 << 16, 1))
    except OSError as error:
        say(event="failed", text=str(error))
    up(buffer, pattern(1 << 16, 2))
    device.synchronize()


def timeouts(count):
    """As BEAM does it: a kernel that does not end within its time is given up, and others are tried."""
    device = open_device()
    for _ in range(int(count)):
        submit_barrier(device)
        try:
            device.synchronize(timeout=600)
        except RuntimeError as error:
            say(event="hang", text=str(error))


def regions(count):
    """A region of shared memory for each of many small buffers."""
    from tinygrad.device import BufferSpec
    device = open_device()
    kept = [device.allocator.alloc(4096, BufferSpec(host=True, nolru=True))
            for _ in range(int(count))]
    say(event="regions", count=len(kept))


def main(action, *arguments):
    say(event="start", pid=os.getpid())
    if action == "boot":
        open_device()
    elif action == "copy":
        open_device()
        for size in arguments:
            copy(int(size))
    elif action == "many":
        # more than the 32 staging buffers, so that they come round
        device = open_device()
        buffer = new_buffer(1 << 16)
        for i in range(int(arguments[0])):
            up(buffer, pattern(1 << 16, i))
        say(event="copied", size=1 << 16, sent=digest(pattern(1 << 16, i)),
            got=digest(down(buffer)))
        device.synchronize()
    elif action == "disk":
        open_device()
        for path in arguments:
            size = os.path.getsize(path)
            there = Tensor.empty(size, dtype=dtypes.uint8, device=f"disk:{path}")
            here = there.to("AMD").contiguous().realize()
            buffer = here.uop.buffer
            with open(path, "rb") as file:
                say(event="copied", size=size, sent=digest(file.read()), got=digest(down(buffer)))
    elif action == "barrier":
        # the compute queue's control packets: caches, wait, signal
        device = open_device()
        for _ in range(int(arguments[0])):
            device.invalidate_caches()
        say(event="timeline", value=device.timeline_signal.value,
            expected=device.timeline_value - 1)
    elif action == "chain":
        # a copy behind a barrier behind a copy, none of them waited for before all are submitted
        device = open_device()
        buffer = new_buffer(1 << 16)
        for i in range(int(arguments[0])):
            up(buffer, pattern(1 << 16, i))
            submit_barrier(device)
        up(buffer, pattern(1 << 16, 0))
        device.synchronize()
        say(event="timeline", value=device.timeline_signal.value,
            expected=device.timeline_value - 1)
    elif action == "leak":
        leak(*arguments)
    elif action == "shift":
        shift(*arguments)
    elif action in ("ring", "gap", "regions", "timeouts"):
        globals()[action](*arguments)
    elif action == "map":
        # buffers of 2 MiB, each mapped: two TLB invalidations
        device = open_device()
        kept = [new_buffer(2 << 20) for _ in range(int(arguments[0]))]
        say(event="mapped", count=len(kept))
    elif action == "twice":
        # goes on after a hang, as a notebook does
        device = open_device()
        buffer = new_buffer(1 << 16)
        for i in range(2):
            try:
                up(buffer, pattern(1 << 16, i))
                device.synchronize()
            except RuntimeError as error:
                say(event="hang", text=str(error))
    elif action == "wait":
        open_device()
        copy(1 << 16)
        say(event="ready")
        time.sleep(600)
    else:
        raise SystemExit(f"no action {action}")
    if "AMD" in Device._opened_devices and Device["AMD"].cached_renderer:
        raise SystemExit("a renderer was made: this test is to need no compiler")


if __name__ == "__main__":
    main(*sys.argv[1:])
