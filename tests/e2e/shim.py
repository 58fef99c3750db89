"""Lets the stock tinygrad package meet the simulated GPU on any system and without the network.

Importing this module
  - answers firmware requests with images of our own: right headers, meaningless content;
  - with APL_REMOTE_SOCK set, makes tinygrad take its macOS client (Unix socket, shared memory).
Nothing else of tinygrad is touched.
"""
import os
import struct

import tinygrad.runtime.support.am.amdev as amdev
import tinygrad.runtime.support.system as system

COMMON = 32  # bytes of struct common_firmware_header, which starts every image


def _content(size, seed):
    return bytes((seed * 41 + i * 7) & 0xFF for i in range(size))


def _image(name, major, minor, fields, body, ucode_size=None):
    """Common header, then `fields` as dwords, then (256-byte aligned) the body."""
    header_size = COMMON + 4 * len(fields)
    start = (header_size + 255) & ~255
    size = ucode_size if ucode_size is not None else len(body)
    header = struct.pack("<IIHHHHIIII", start + len(body), header_size, major, minor, 0, 0, 0x42,
                         size, start, 0)
    image = header + struct.pack(f"<{len(fields)}I", *fields)
    return image.ljust(start, b"\0") + body


# psp_gfx_if.h / amdgpu_ucode.h: psp_fw_type
SOS, SYS_DRV, KDB, TOC, SPL, RL, SOC_DRV, INTF_DRV, DBG_DRV, RAS_DRV = range(1, 11)


def _sos(name):
    parts = [KDB, SPL, SYS_DRV, SOC_DRV, INTF_DRV, DBG_DRV, RAS_DRV, TOC, SOS]
    fields, body = [len(parts)], b""
    for part in parts:
        content = _content(3000 + 64 * part, part)
        fields += [part, 1, len(body), len(content)]  # type, version, offset, size
        body += content
    return _image(name, 2, 0, fields, body)


def _smu(name):
    return _image(name, 2, 1, [0, 0, 0], _content(20000, 18))  # start address, pptables: none


def _sdma(name):
    body = _content(12000, 71)
    if name.startswith("sdma_6"):
        # v2: context thread's code first, control thread's behind it
        start = (COMMON + 32 + 255) & ~255
        fields = [1, 8000, 0, 0, start + 8000, 4000, 0, 0]
        return _image(name, 2, 0, fields, body)
    return _image(name, 3, 0, [1, 256, len(body)], body)


def _engine(name):
    code, data = _content(40000, len(name)), _content(4096, 3)
    start = (COMMON + 28 + 255) & ~255
    fields = [1, len(code), start, len(data), start + len(code), 0x1000, 0]
    return _image(name, 2, 0, fields, code + data)


def _imu(name):
    body = _content(9000, 68)
    return _image(name, 1, 0, [6000, 0, 3000, 0], body, ucode_size=6000)


def _rlc(name):
    # v2.3: the v2.1 part (save/restore lists) stays empty, then IRAM, DRAM, RLC_P and RLC_V
    main, iram, dram, p, v = (_content(n, n & 15) for n in (16000, 3000, 2000, 1500, 2500))
    offsets, at = [], (0xCC + 255) & ~255
    for part in (main, iram, dram, p, v):
        offsets.append(at)
        at += len(part)
    fields = [0] * ((0xCC - COMMON) // 4)

    def put(offset, *values):
        for i, value in enumerate(values):
            fields[(offset - COMMON) // 4 + i] = value

    put(0x9C, len(iram), offsets[1], len(dram), offsets[2])
    put(0xB4, len(p), offsets[3])
    put(0xC4, len(v), offsets[4])
    return _image(name, 2, 3, fields, main + iram + dram + p + v, ucode_size=len(main))


MAKERS = [("psp_", _sos), ("smu_", _smu), ("sdma_", _sdma), ("_imu.bin", _imu), ("_rlc.bin", _rlc),
          ("gc_", _engine)]


def firmware(path, name, sha256=None):
    for key, make in MAKERS:
        if key in name:
            return make(name)
    raise FileNotFoundError(f"no firmware called {name}")


amdev.fetch_fw = firmware

if os.environ.get("APL_REMOTE_SOCK"):
    client = system.APLRemotePCIDevice
    client.ensure_app = classmethod(lambda cls: None)
    client.APP_PATH = "/bin/false"  # started when nobody listens
    type(system.System).list_devices = lambda self, *args, **kwargs: [(client, "1002:744c")]
