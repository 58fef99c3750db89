#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "proxy/pci.h"
#include "proxy/socket.h"

namespace tg::proxy {
namespace {

// "0x744c" in a file of its own.
bool ReadHex(const std::string& path, uint32_t& value) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text)) return false;
  char* end = nullptr;
  value = static_cast<uint32_t>(std::strtoul(text.c_str(), &end, 16));
  return end != text.c_str();
}

std::string LinkName(const std::string& path) {
  char target[512];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
  if (n <= 0) return "";
  const std::string text(target, static_cast<size_t>(n));
  return text.substr(text.rfind('/') + 1);
}

}  // namespace

PciReport LookAtPci(const std::string& folder) {
  PciReport report;
  DIR* dir = ::opendir(folder.c_str());
  if (!dir) {
    report.problem = errno == ENOENT ? "this system shows no PCI bus" : ErrnoText(errno);
    return report;
  }
  report.known = true;
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    const std::string at = folder + "/" + entry->d_name;
    uint32_t vendor = 0, device = 0, class_code = 0;
    if (!ReadHex(at + "/vendor", vendor) || !ReadHex(at + "/device", device) ||
        !ReadHex(at + "/class", class_code))
      continue;
    PciDevice found{entry->d_name, static_cast<uint16_t>(vendor), static_cast<uint16_t>(device),
                    class_code, LinkName(at + "/driver")};
    if (WorthShowing(found)) report.devices.push_back(std::move(found));
  }
  ::closedir(dir);
  std::sort(report.devices.begin(), report.devices.end(),
            [](const PciDevice& a, const PciDevice& b) { return a.address < b.address; });
  return report;
}

PciReport LookAtPci() {
  return LookAtPci("/sys/bus/pci/devices");
}

DriverServiceReport LookAtDriverService() {
  return {};
}

}  // namespace tg::proxy
