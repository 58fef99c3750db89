#include "schemas/wire/address.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace tg::wire {
namespace {

bool Digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

tl::unexpected<Error> Bad(std::string message) {
  return Fail(Error::Code::kUsage, std::move(message));
}

Result<Address> ParsePath(std::string_view path, std::string_view text) {
  if (path.empty()) return Bad("address '" + std::string(text) + "' has no path");
  if (path.find('\0') != path.npos) return Bad("a socket path cannot hold a NUL byte");
  if (path.size() > UnixPathLimit())
    return Bad("socket path is " + std::to_string(path.size()) +
               " bytes long, this system takes at most " + std::to_string(UnixPathLimit()) +
               "; choose a shorter one: " + std::string(path));
  Address address;
  address.path = path;
  return address;
}

Result<Address> ParseTcp(std::string_view rest, std::string_view text) {
  const std::string shown = "address '" + std::string(text) + "'";
  std::string_view host = rest, port;
  bool has_port = false;
  if (!rest.empty() && rest.front() == '[') {
    const size_t close = rest.find(']');
    if (close == rest.npos) return Bad(shown + " has no closing bracket");
    host = rest.substr(1, close - 1);
    const std::string_view behind = rest.substr(close + 1);
    if (!behind.empty() && behind.front() != ':')
      return Bad(shown + ": only :port may follow the closing bracket");
    has_port = !behind.empty();
    if (has_port) port = behind.substr(1);
  } else if (const size_t colon = rest.find(':'); colon != rest.npos) {
    if (rest.find(':', colon + 1) != rest.npos)
      return Bad(shown + " has more than one colon: write an IPv6 address as tcp:[::1]:port");
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
    has_port = true;
  } else if (Digits(rest)) {
    return Bad(shown + " names no host: write tcp:127.0.0.1:" + std::string(rest));
  }
  if (host.empty()) return Bad(shown + " names no host: write tcp:host:port");
  if (host.find('\0') != host.npos) return Bad("a host name cannot hold a NUL byte");

  Address address;
  address.kind = Address::Kind::kTcp;
  address.host = host;
  address.port = kDefaultTcpPort;
  if (has_port) {
    if (!Digits(port)) return Bad(shown + ": '" + std::string(port) + "' is no port number");
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error != std::errc()) return Bad(shown + ": ports go up to 65535");
  }
  return address;
}

}  // namespace

size_t UnixPathLimit() {
  return sizeof(sockaddr_un::sun_path) - 1;
}

Result<Address> ParseAddress(std::string_view text) {
  if (text.empty()) return Bad("empty address: write unix:/path or tcp:host:port");
  if (text.starts_with("unix:")) return ParsePath(text.substr(5), text);
  if (text.starts_with("tcp:")) return ParseTcp(text.substr(4), text);
  // "host:6667" as tinygrad's REMOTE has it: a socket file of that name is never what was meant.
  const size_t colon = text.rfind(':');
  if (colon != text.npos && text.find('/') == text.npos && Digits(text.substr(colon + 1)))
    return Bad("address '" + std::string(text) +
               "' looks like a TCP one: write tcp:" + std::string(text));
  return ParsePath(text, text);
}

std::string FormatAddress(const Address& address) {
  if (address.is_unix()) return "unix:" + address.path;
  const bool bracket = address.host.find(':') != address.host.npos;
  return "tcp:" + (bracket ? "[" + address.host + "]" : address.host) + ":" +
         std::to_string(address.port);
}

}  // namespace tg::wire
