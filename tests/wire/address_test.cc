#include "schemas/wire/address.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace tg::wire {
namespace {

std::string Why(std::string_view text) {
  const Result<Address> address = ParseAddress(text);
  EXPECT_FALSE(address) << text;
  if (address) return "";
  EXPECT_EQ(address.error().code, Error::Code::kUsage);
  return address.error().message;
}

TEST(Address, Reads) {
  struct {
    std::string_view text;
    Address want;
    std::string_view again;
  } cases[] = {
      {"unix:/tmp/a.sock", {Address::Kind::kUnix, "/tmp/a.sock", "", 0}, "unix:/tmp/a.sock"},
      {"/tmp/a.sock", {Address::Kind::kUnix, "/tmp/a.sock", "", 0}, "unix:/tmp/a.sock"},
      {"a.sock", {Address::Kind::kUnix, "a.sock", "", 0}, "unix:a.sock"},
      {"unix:tcp:1", {Address::Kind::kUnix, "tcp:1", "", 0}, "unix:tcp:1"},
      {"./dir/host:80", {Address::Kind::kUnix, "./dir/host:80", "", 0}, "unix:./dir/host:80"},
      {"tcp:box:7000", {Address::Kind::kTcp, "", "box", 7000}, "tcp:box:7000"},
      {"tcp:box", {Address::Kind::kTcp, "", "box", 6667}, "tcp:box:6667"},
      {"tcp:127.0.0.1:0", {Address::Kind::kTcp, "", "127.0.0.1", 0}, "tcp:127.0.0.1:0"},
      {"tcp:[::1]:65535", {Address::Kind::kTcp, "", "::1", 65535}, "tcp:[::1]:65535"},
      {"tcp:[fe80::1]", {Address::Kind::kTcp, "", "fe80::1", 6667}, "tcp:[fe80::1]:6667"},
  };
  for (const auto& c : cases) {
    const Result<Address> got = ParseAddress(c.text);
    ASSERT_TRUE(got) << c.text << ": " << got.error().message;
    EXPECT_EQ(*got, c.want) << c.text;
    EXPECT_EQ(FormatAddress(*got), c.again);
    EXPECT_EQ(ParseAddress(FormatAddress(*got)).value(), c.want);
  }
}

TEST(Address, SaysWhatToWriteInstead) {
  EXPECT_NE(Why("").find("tcp:host:port"), std::string::npos);
  EXPECT_NE(Why("unix:").find("no path"), std::string::npos);
  EXPECT_NE(Why("tcp:").find("no host"), std::string::npos);
  EXPECT_NE(Why("tcp::6667").find("no host"), std::string::npos);
  EXPECT_NE(Why("tcp:6667").find("tcp:127.0.0.1:6667"), std::string::npos);
  EXPECT_NE(Why("box:6667").find("tcp:box:6667"), std::string::npos);
  EXPECT_NE(Why("tcp:box:").find("no port number"), std::string::npos);
  EXPECT_NE(Why("tcp:box:x").find("'x' is no port number"), std::string::npos);
  EXPECT_NE(Why("tcp:box:-1").find("no port number"), std::string::npos);
  EXPECT_NE(Why("tcp:box:65536").find("65535"), std::string::npos);
  EXPECT_NE(Why("tcp:box:99999999999999999999").find("65535"), std::string::npos);
  EXPECT_NE(Why("tcp:::1:6667").find("tcp:[::1]:port"), std::string::npos);
  EXPECT_NE(Why("tcp:[::1").find("closing bracket"), std::string::npos);
  EXPECT_NE(Why("tcp:[::1]6667").find("closing bracket"), std::string::npos);
  EXPECT_NE(Why(std::string_view("unix:/a\0b", 9)).find("NUL"), std::string::npos);
}

TEST(Address, PathLimitIsThePlatforms) {
  const size_t limit = sizeof(sockaddr_un::sun_path) - 1;
  EXPECT_EQ(UnixPathLimit(), limit);
  EXPECT_TRUE(ParseAddress("/" + std::string(limit - 1, 'a')));
  const std::string why = Why("unix:/" + std::string(limit, 'a'));
  EXPECT_NE(why.find(std::to_string(limit + 1) + " bytes"), std::string::npos) << why;
  EXPECT_NE(why.find("at most " + std::to_string(limit)), std::string::npos) << why;
}

}  // namespace
}  // namespace tg::wire
