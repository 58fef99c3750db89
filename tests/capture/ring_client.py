"""The stock driver does some work, then tells what is in its rings. python ring_client.py COPIES"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import shim  # noqa: E402,F401
from client import new_buffer, open_device, pattern, say, up  # noqa: E402


def ring(queue, unit):
    size = queue.put_value * unit
    return bytes(queue.ring.view(fmt="B")[:size]).hex()


device = open_device()
buffer = new_buffer(1 << 16)
for i in range(int(sys.argv[1])):
    up(buffer, pattern(1 << 16, i))
    if i % 4 == 0:
        device.invalidate_caches()
device.synchronize()
say(event="rings", SDMA0=ring(device.sdma_queue(0), 1), COMPUTE0=ring(device.compute_queue, 4))
