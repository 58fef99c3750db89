#!/usr/bin/env python3
"""Writes registers_data.cc from the register facts in the `tinygrad` package.

  python3 schemas/amd/gen_registers.py PATH/TO/tinygrad/runtime/autogen/am/regs.py \
      --source "tinygrad 0.14.0" > schemas/amd/registers_data.cc

The input is a file of Python literals (one dict per IP module: register name -> (dword offset, base
index, {field: (lsb, msb)})). It is read with ast.literal_eval; tinygrad itself is not imported.
A new chip: a newer input file (or one edited by hand; only its literals matter).
"""
import argparse
import ast
import collections
import hashlib
import re
import sys

# Registers that have no name in the input though the AM driver touches them. Within
# CP_MQD_BASE_ADDR .. CP_HQD_PQ_WPTR_HI the driver writes the MQD image dword by dword, so the holes
# are named after the field of the MQD (v11_structs/v12_structs: 0x80 + 16 and 0x80 + 26).
MQD_HOLES = {16: "regCP_MQD_RESERVED_144", 26: "regCP_HQD_SEMA_CMD"}

# Readable at fixed places in every card, before its discovery table is known.
FIXED = {
    "mmMM_INDEX": (0, 0, {"offset": (0, 30), "aperture": (31, 31)}),
    "mmMM_DATA": (1, 0, {}),
    "mmMM_INDEX_HI": (6, 0, {"offset_hi": (0, 31)}),
    "mmRCC_CONFIG_MEMSIZE": (0xde3, 0, {}),
}

# Where several names share an address, this one is shown: the names by which the MQD calls them.
PREFERRED = re.compile(
    r"regCOMPUTE_STATIC_THREAD_MGMT_SE\d|regCP_HQD_HQ_STATUS0|regCP_HQD_HQ_CONTROL0|regCP_HQD_OFFLOAD|"
    r"regGB_ADDR_CONFIG|regRLC_GPM_STAT")


def load(path):
    modules = {}
    for node in ast.parse(open(path, encoding="utf-8").read()).body:
        if isinstance(node, ast.Assign):
            modules[node.targets[0].id] = ast.literal_eval(node.value)
    order = modules.pop("__all__", sorted(modules))
    return {name: modules[name] for name in order}


def add_mqd_holes(registers):
    base = registers.get("regCP_MQD_BASE_ADDR")
    last = registers.get("regCP_HQD_PQ_WPTR_HI")
    if not base or not last:
        return
    taken = {r[:2] for r in registers.values()}
    for index, name in MQD_HOLES.items():
        where = (base[0] + index, base[1])
        if where not in taken and where[0] <= last[0]:
            registers[name] = (*where, {})


class Pool:
    """Strings in one literal; a string is known by its index."""

    def __init__(self, strings):
        self.strings = sorted(strings)
        self.index = {s: i for i, s in enumerate(self.strings)}

    def emit(self, name):
        print(f"const char k{name}Pool[] =")
        line = ""
        for s in self.strings:
            if len(line) + len(s) > 92:
                print(f'    "{line}"')
                line = ""
            line += s
        print(f'    "{line}";')
        offsets, at = [], 0
        for s in self.strings:
            offsets.append(at)
            at += len(s)
        emit_numbers(f"const uint32_t k{name}Offset[]", offsets + [at])


def emit_numbers(head, numbers):
    emit_cells(head, [str(n) for n in numbers])


def emit_cells(head, cells):
    print(f"{head} = {{")
    line = "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            print(line)
            line = "   "
        line += f" {cell},"
    print(line)
    print("};")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("regs")
    parser.add_argument("--source", required=True, help="what the input belongs to")
    args = parser.parse_args()
    modules = load(args.regs)
    modules["fixed_0_0_0"] = FIXED
    digest = hashlib.sha256(open(args.regs, "rb").read()).hexdigest()

    for name, registers in modules.items():
        if name.startswith("gc_"):
            add_mqd_holes(registers)

    names = Pool({r for m in modules.values() for r in m})
    field_names = Pool({f for m in modules.values() for r in m.values() for f in r[2]})
    sets = collections.OrderedDict({(): 0})
    for registers in modules.values():
        for _, _, fields in registers.values():
            sets.setdefault(tuple(sorted(fields.items(), key=lambda f: (f[1], f[0]))), len(sets))

    module_rows, register_rows = [], []
    for module, registers in modules.items():
        prefix, *version = module.split("_")
        by_place = collections.defaultdict(list)
        for r, (offset, base, _) in registers.items():
            by_place[(offset, base)].append(r)
        shown = {min(rs, key=lambda r: (not PREFERRED.fullmatch(r), rs.index(r)))
                 for rs in by_place.values()}
        module_rows.append(f'{{"{prefix}", {{{", ".join(version)}}}, {len(register_rows)}, '
                           f"{len(registers)}}}")
        # By name, so that a name is found by bisection.
        for r in sorted(registers):
            offset, base, fields = registers[r]
            key = tuple(sorted(fields.items(), key=lambda f: (f[1], f[0])))
            register_rows.append(f"{{{offset},{names.index[r]},{sets[key]},{base},{int(r not in shown)}}}")
            assert base < 16 and offset < 1 << 32

    fields, starts = [], []
    for key in sets:
        starts.append(len(fields))
        for field, (lsb, msb) in key:
            assert 0 <= lsb <= msb < 64, (field, lsb, msb)
            fields.append(f"{{{field_names.index[field]},{lsb},{msb}}}")
    starts.append(len(fields))
    assert max(len(names.strings), len(field_names.strings), len(sets), len(fields)) < 1 << 16

    print("// Generated by schemas/amd/gen_registers.py; do not edit.")
    print(f"// Facts from {args.source}, tinygrad/runtime/autogen/am/regs.py (MIT licence)")
    print(f"// sha256 {digest},")
    print("// which has them from the register headers of the Linux kernel's amdgpu driver (MIT licence).")
    print("// clang-format off")
    print('#include "schemas/amd/registers_data.h"\n')
    print("namespace tg::amd::data {\n")
    emit_cells("const Module kModules[]", module_rows)
    print(f"const size_t kModuleCount = {len(module_rows)};\n")
    print("// dword offset, name, field set, base index, 1: another name is shown for this address")
    emit_cells("const RegisterDef kRegisters[]", register_rows)
    print(f"const size_t kRegisterCount = {len(register_rows)};\n")
    names.emit("Name")
    print(f"const size_t kNameCount = {len(names.strings)};\n")
    field_names.emit("FieldName")
    emit_numbers("const uint16_t kFieldSetStart[]", starts)
    print("// name, lowest bit, highest bit")
    emit_cells("const FieldDef kFields[]", fields)
    print("\n}  // namespace tg::amd::data")
    print(f"{len(module_rows)} modules, {len(register_rows)} registers", file=sys.stderr)


if __name__ == "__main__":
    main()
