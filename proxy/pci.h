// The host's PCI display devices, and which of them tinygrad would take: for `rpcproxy status`.
// Reads what the system shows (sysfs; IOKit's registry); opens no device and no connection.
//
// Facts: tinygrad 0.14.0, System.pci_scan_bus and the PCIIface of ops_amd.py and ops_nv.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tg::proxy {

struct PciDevice {
  std::string address;  // "0000:03:00.0"; on macOS as tinygrad names it, "1002:744c"
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint32_t class_code = 0;  // 24 bits: class, subclass, interface
  std::string driver;       // of the system, that holds it; empty: none, or not known
};

// Does the driver of that name take such a device, and if not, why? Empty: it does.
std::string WhyNotAmd(const PciDevice& device);
std::string WhyNotNvidia(const PciDevice& device);
// Worth showing: a display controller, a processing accelerator, or something of those two makers
// that a filter takes.
bool WorthShowing(const PciDevice& device);

struct PciReport {
  bool known = false;              // the system could be asked
  std::string problem;             // why not
  std::vector<PciDevice> devices;  // those worth showing, by address
};
PciReport LookAtPci();

// The service that TinyGPU's driver extension registers and TinyGPU.app opens.
struct DriverServiceReport {
  bool applies = false;  // this system has such services
  bool known = false;
  bool present = false;
  std::string problem;
};
DriverServiceReport LookAtDriverService();

#ifdef __linux__
PciReport LookAtPci(const std::string& devices_folder);  // "/sys/bus/pci/devices"
#endif

}  // namespace tg::proxy
