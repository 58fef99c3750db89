// IOKit and CoreFoundation by dlopen: their headers are not in every SDK this is compiled with, and
// a status line is not worth a link dependency. Everything fails softly: a function that is not
// there, or a registry that cannot be asked, is a `problem` in the report.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

#include "proxy/pci.h"

namespace tg::proxy {
namespace {

// Of the frameworks' public interfaces. mach_port_t and io_object_t are 32-bit numbers; 0 stands
// for the default main port and for no object.
using Object = uint32_t;
using Ref = const void*;
using Index = long;
struct Range {
  Index location;
  Index length;
};
constexpr uint32_t kUtf8 = 0x08000100;  // kCFStringEncodingUTF8

struct Frameworks {
  Ref (*matching_class)(const char*) = nullptr;
  Ref (*matching_name)(const char*) = nullptr;
  int (*get_services)(Object, Ref, Object*) = nullptr;  // consumes the dictionary
  Object (*get_service)(Object, Ref) = nullptr;         // likewise
  Object (*next)(Object) = nullptr;
  int (*release_object)(Object) = nullptr;
  Ref (*property)(Object, Ref, Ref, uint32_t) = nullptr;
  Ref (*make_string)(Ref, const char*, uint32_t) = nullptr;
  unsigned long (*type_of)(Ref) = nullptr;
  unsigned long (*data_type)() = nullptr;
  Index (*data_length)(Ref) = nullptr;
  void (*data_bytes)(Ref, Range, uint8_t*) = nullptr;
  void (*release)(Ref) = nullptr;
  std::string problem;

  Frameworks() {
    void* iokit = ::dlopen("/System/Library/Frameworks/IOKit.framework/IOKit", RTLD_LAZY);
    void* core =
        ::dlopen("/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation", RTLD_LAZY);
    if (!iokit || !core) {
      problem = "IOKit cannot be loaded";
      return;
    }
    Load(iokit, "IOServiceMatching", matching_class);
    Load(iokit, "IOServiceNameMatching", matching_name);
    Load(iokit, "IOServiceGetMatchingServices", get_services);
    Load(iokit, "IOServiceGetMatchingService", get_service);
    Load(iokit, "IOIteratorNext", next);
    Load(iokit, "IOObjectRelease", release_object);
    Load(iokit, "IORegistryEntryCreateCFProperty", property);
    Load(core, "CFStringCreateWithCString", make_string);
    Load(core, "CFGetTypeID", type_of);
    Load(core, "CFDataGetTypeID", data_type);
    Load(core, "CFDataGetLength", data_length);
    Load(core, "CFDataGetBytes", data_bytes);
    Load(core, "CFRelease", release);
  }

  template <typename Fn>
  void Load(void* library, const char* name, Fn& fn) {
    fn = reinterpret_cast<Fn>(::dlsym(library, name));
    if (!fn && problem.empty()) problem = std::string("IOKit has no ") + name;
  }

  // A property that holds a little-endian number as data.
  uint32_t Number(Object service, const char* key) const {
    const Ref name = make_string(nullptr, key, kUtf8);
    if (!name) return 0;
    const Ref value = property(service, name, nullptr, 0);
    release(name);
    if (!value) return 0;
    uint32_t number = 0;
    if (type_of(value) == data_type()) {
      uint8_t bytes[4] = {};
      data_bytes(value, {0, std::min<Index>(data_length(value), 4)}, bytes);
      for (int i = 3; i >= 0; i--) number = number << 8 | bytes[i];
    }
    release(value);
    return number;
  }
};

const Frameworks& Loaded() {
  static const Frameworks frameworks;
  return frameworks;
}

}  // namespace

PciReport LookAtPci() {
  PciReport report;
  const Frameworks& f = Loaded();
  report.problem = f.problem;
  if (!report.problem.empty()) return report;
  Object iterator = 0;
  const Ref wanted = f.matching_class("IOPCIDevice");
  if (!wanted || f.get_services(0, wanted, &iterator) != 0) {
    report.problem = "IOKit lists no PCI devices";
    return report;
  }
  report.known = true;
  while (const Object service = f.next(iterator)) {
    PciDevice found;
    found.vendor = static_cast<uint16_t>(f.Number(service, "vendor-id"));
    found.device = static_cast<uint16_t>(f.Number(service, "device-id"));
    found.class_code = f.Number(service, "class-code");
    f.release_object(service);
    char name[16];
    std::snprintf(name, sizeof name, "%x:%x", found.vendor, found.device);
    found.address = name;
    if (WorthShowing(found)) report.devices.push_back(std::move(found));
  }
  f.release_object(iterator);
  std::sort(report.devices.begin(), report.devices.end(),
            [](const PciDevice& a, const PciDevice& b) { return a.address < b.address; });
  return report;
}

// By the name that TinyGPU.app looks it up with (server.c). It is looked up, not opened.
DriverServiceReport LookAtDriverService() {
  DriverServiceReport report;
  report.applies = true;
  const Frameworks& f = Loaded();
  report.problem = f.problem;
  if (!report.problem.empty()) return report;
  const Ref wanted = f.matching_name("tinygpu");
  if (!wanted) {
    report.problem = "IOKit cannot be asked";
    return report;
  }
  report.known = true;
  if (const Object service = f.get_service(0, wanted)) {
    report.present = true;
    f.release_object(service);
  }
  return report;
}

}  // namespace tg::proxy
