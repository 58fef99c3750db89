// What `rpcproxy status` says of PCI devices and of TCP addresses.
#include "proxy/status.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proxy/pci.h"
#include "proxy/socket.h"
#include "tests/proxy/rig.h"

namespace tg::proxy::test {
namespace {

bool Contains(const std::string& text, const std::string& wanted) {
  return text.find(wanted) != std::string::npos;
}

// tinygrad 0.14.0: ops_amd.py lists whole device numbers and looks at no class; ops_nv.py wants
// class 03 and compares the upper byte.
TEST(Pci, WhichDevicesTinygradTakes) {
  const PciDevice navi31{"0000:03:00.0", 0x1002, 0x744c, 0x030000, ""};
  EXPECT_EQ(WhyNotAmd(navi31), "");
  EXPECT_EQ(WhyNotNvidia(navi31), "vendor is not 10de");
  const PciDevice mi300{"a", 0x1002, 0x74a1, 0x120000, ""};
  EXPECT_EQ(WhyNotAmd(mi300), "");
  const PciDevice navi21{"b", 0x1002, 0x73bf, 0x030000, ""};
  EXPECT_EQ(WhyNotAmd(navi21), "not in the list of devices");
  const PciDevice ada{"c", 0x10de, 0x2684, 0x030000, ""};
  EXPECT_EQ(WhyNotNvidia(ada), "");
  const PciDevice ada_audio{"d", 0x10de, 0x2684, 0x040300, ""};
  EXPECT_EQ(WhyNotNvidia(ada_audio), "class is not 03 (display)");
  const PciDevice turing{"e", 0x10de, 0x1e04, 0x030000, ""};
  EXPECT_EQ(WhyNotNvidia(turing), "not in the list of families");
  EXPECT_TRUE(WorthShowing(navi21));
  EXPECT_TRUE(WorthShowing(mi300));
  EXPECT_TRUE(WorthShowing({"f", 0x8086, 0x56a0, 0x030000, ""}));
  EXPECT_FALSE(WorthShowing(ada_audio));
  EXPECT_FALSE(WorthShowing({"g", 0x8086, 0x1234, 0x020000, ""}));
}

#ifdef __linux__
TEST(Pci, ReadsWhatSysfsShows) {
  const TempDir dir;
  const auto device = [&](const std::string& address, const char* vendor, const char* id,
                          const char* class_code) {
    std::filesystem::create_directories(dir / address);
    std::ofstream(dir / (address + "/vendor")) << vendor << "\n";
    std::ofstream(dir / (address + "/device")) << id << "\n";
    if (class_code) std::ofstream(dir / (address + "/class")) << class_code << "\n";
  };
  device("0000:03:00.0", "0x1002", "0x744c", "0x030000");
  device("0000:00:1f.6", "0x8086", "0x15bc", "0x020000");
  device("0000:01:00.0", "0x10de", "0x2684", "0x030000");
  device("0000:09:00.0", "0x10de", "0x2684", nullptr);  // vanished while being looked at
  std::filesystem::create_directory(dir / "amdgpu");
  std::filesystem::create_symlink(dir / "amdgpu", dir / "0000:03:00.0/driver");
  const PciReport report = LookAtPci(dir / "");
  EXPECT_TRUE(report.known);
  ASSERT_EQ(report.devices.size(), 2u);
  EXPECT_EQ(report.devices[0].address, "0000:01:00.0");
  EXPECT_EQ(report.devices[1].driver, "amdgpu");
  EXPECT_EQ(report.devices[1].class_code, 0x030000u);
  EXPECT_FALSE(LookAtPci(dir / "nothing").known);
  EXPECT_FALSE(LookAtDriverService().applies);

  StatusReport status;
  status.pci = report;
  const std::string text = StatusText(status);
  EXPECT_TRUE(Contains(text,
                       "pci     0000:03:00.0: 1002:744c class 030000, driver amdgpu: taken by "
                       "tinygrad's AMD driver"))
      << text;
  EXPECT_TRUE(Contains(text, "10de:2684 class 030000: taken by tinygrad's NV driver")) << text;
  EXPECT_TRUE(Contains(text, "dev_id  over TinyGPU.app always 0")) << text;
  EXPECT_TRUE(Contains(StatusJson(status), "\"amd\": true"));
}
#endif

TEST(Status, DriverServiceOfTheExtension) {
  StatusReport report;
  EXPECT_FALSE(Contains(StatusText(report), "driver  "));
  report.driver_service = {.applies = true, .known = true, .present = false, .problem = ""};
  EXPECT_TRUE(Contains(StatusText(report), "driver  the driver extension's service is not there"));
  report.driver_service.present = true;
  EXPECT_TRUE(Contains(StatusText(report), "driver  the driver extension's service is there"));
  report.driver_service = {
      .applies = true, .known = false, .present = false, .problem = "IOKit cannot be loaded"};
  EXPECT_TRUE(Contains(StatusText(report), "driver  not known: IOKit cannot be loaded"));
  EXPECT_TRUE(Contains(StatusJson(report), "\"present\": null"));
}

const char* NoEnvironment(const char*) {
  return nullptr;
}

TEST(Status, TcpListenersAndConnections) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t size = sizeof at;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const uint16_t port = ntohs(at.sin_port);
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  const UniqueFd server(::accept(listener.get(), nullptr, nullptr));

  const std::string me = "(pid " + std::to_string(::getpid()) + ")";
  wire::Address here = TcpLocal(port);
  wire::Address there = here;
  there.host = "192.0.2.7";  // an address for examples: of nobody
  StatusReport report = GatherStatus(here, there, NoEnvironment);
  EXPECT_TRUE(report.proxy.known);
  EXPECT_TRUE(report.proxy.listening);
  ASSERT_EQ(report.proxy.owners.size(), 1u);
  EXPECT_EQ(report.proxy.owners[0].pid, ::getpid());
  ASSERT_EQ(report.proxy.connections.size(), 1u);
  ASSERT_EQ(report.proxy.connections[0].client.size(), 1u);
  ASSERT_EQ(report.proxy.connections[0].server.size(), 1u);
  EXPECT_TRUE(report.server.elsewhere);
  EXPECT_TRUE(report.server.connections.empty());
  const std::string text = StatusText(report);
  EXPECT_TRUE(Contains(text, ": listening, ")) << text;
  EXPECT_TRUE(Contains(text, me + " -> ")) << text;
  EXPECT_TRUE(Contains(text, "on another host: whether it listens is not seen from here")) << text;
  EXPECT_FALSE(Contains(text, "not looked at")) << text;
  EXPECT_TRUE(Contains(StatusJson(report), "\"elsewhere\": true"));

  // The same address before anybody listens.
  wire::Address nobody = here;
  nobody.port = 1;
  report = GatherStatus(nobody, here, NoEnvironment);
  EXPECT_TRUE(report.proxy.known);
  EXPECT_FALSE(report.proxy.listening);
  EXPECT_TRUE(Contains(StatusText(report), "nobody listens")) << StatusText(report);
}

}  // namespace
}  // namespace tg::proxy::test
