// The listening side: one client at a time, paths, stopping.
#include "replay/sim/server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "replay/client/rpc_port.h"
#include "replay/client/session.h"
#include "tests/sim/peer.h"
#include "tests/sim/rig.h"

namespace tg::test {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "simtest.XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

class Running {
 public:
  Running(sim::Gpu& gpu, const wire::Address& listen) {
    sim::ServerOptions options;
    options.listen = listen;
    auto made = sim::Server::Listen(gpu, options);
    if (!made) throw std::runtime_error(made.error().message);
    server = *std::move(made);
    thread_ = std::thread([this] { end = server->Run(); });
  }
  ~Running() { Stop(); }
  void Stop() {
    if (!thread_.joinable()) return;
    server->Stop();
    thread_.join();
  }
  void Wait() { thread_.join(); }
  std::unique_ptr<sim::Server> server;
  sim::Server::End end = sim::Server::End::kStopped;

 private:
  std::thread thread_;
};

wire::Address Unix(const std::string& path) {
  return wire::ParseAddress("unix:" + path).value();
}

std::unique_ptr<Peer> Dial(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return std::make_unique<Peer>(fd);
}

TEST(Server, ServesOneClientAfterTheOther) {
  Folder folder;
  Rig rig;
  Running running(*rig.gpu, Unix(folder.path + "/s"));
  auto first = Dial(folder.path + "/s");
  first->Send(3, 0, 0, 4);
  EXPECT_EQ(first->Reply().resp0, 0x744c1002u);
  // The second one connects, is not answered, and is served when the first has gone.
  auto second = Dial(folder.path + "/s");
  second->Send(3, 0, 0, 4);
  EXPECT_TRUE(second->Silent(100));
  first->Close();
  EXPECT_EQ(second->Reply().resp0, 0x744c1002u);
}

TEST(Server, StopsWhileItWaitsAndWhileItServes) {
  Folder folder;
  Rig rig;
  {
    Running idle(*rig.gpu, Unix(folder.path + "/s"));
    idle.Stop();
    EXPECT_EQ(idle.end, sim::Server::End::kStopped);
  }
  Running busy(*rig.gpu, Unix(folder.path + "/s"));
  auto client = Dial(folder.path + "/s");
  client->Send(3, 0, 0, 4);
  client->Reply();
  busy.Stop();
  EXPECT_TRUE(client->Closed());
}

TEST(Server, SocketFileIsPrivateAndGoesAway) {
  Folder folder;
  const std::string path = folder.path + "/s";
  Rig rig;
  {
    Running running(*rig.gpu, Unix(path));
    struct stat file = {};
    ASSERT_EQ(stat(path.c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600u);
    // A second server takes the path over, as TinyGPU.app does.
    Rig other;
    Running second(*other.gpu, Unix(path));
    EXPECT_TRUE(Dial(path) != nullptr);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Server, ExitLeavesTheSocketFile) {
  Folder folder;
  const std::string path = folder.path + "/s";
  Rig rig;
  rig.Hang("exit");
  {
    Running running(*rig.gpu, Unix(path));
    auto client = Dial(path);
    client->Send(3, 0, 0, 4);
    EXPECT_TRUE(client->Closed());
    running.Wait();
    EXPECT_EQ(running.end, sim::Server::End::kExit);
  }
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Server, PathsThatCannotBe) {
  Folder folder;
  Rig rig;
  sim::ServerOptions options;
  options.listen.path = folder.path + "/" + std::string(120, 'x');
  auto long_path = sim::Server::Listen(*rig.gpu, options);
  ASSERT_FALSE(long_path);
  EXPECT_EQ(long_path.error().code, Error::Code::kUsage);
  EXPECT_NE(long_path.error().message.find(std::to_string(wire::UnixPathLimit())),
            std::string::npos);
  // A file that is no socket is not removed.
  options.listen.path = folder.path + "/precious";
  std::ofstream(options.listen.path) << "data";
  EXPECT_FALSE(sim::Server::Listen(*rig.gpu, options));
  EXPECT_TRUE(std::filesystem::exists(options.listen.path));
}

TEST(Server, TcpGivesThePortItChose) {
  Rig rig;
  Running running(*rig.gpu, wire::ParseAddress("tcp:127.0.0.1:0").value());
  EXPECT_NE(running.server->address().port, 0);
  auto port = client::ConnectPort(running.server->address(), {});
  ASSERT_TRUE(port);
  auto session = client::Session::Open(**port, {});
  ASSERT_TRUE(session) << session.error().message;
  const auto buffer = (*session)->Allocate(10'000).value();
  const std::vector<uint8_t> data = Pattern(10'000, 2);
  std::vector<uint8_t> back(data.size());
  ASSERT_TRUE((*session)->CopyIn(buffer, data));
  ASSERT_TRUE((*session)->CopyOut(buffer, back));
  EXPECT_TRUE(back == data);
  ASSERT_TRUE((*session)->Close());
}

TEST(Server, BuiltInClientOverTheUnixSocket) {
  Folder folder;
  Rig rig;
  Running running(*rig.gpu, Unix(folder.path + "/s"));
  auto port = client::ConnectPort(running.server->address(), {});
  ASSERT_TRUE(port);
  auto session = client::Session::Open(**port, {});
  ASSERT_TRUE(session) << session.error().message;
  const auto buffer = (*session)->Allocate(3 << 20).value();
  const std::vector<uint8_t> data = Pattern(3 << 20, 2);
  std::vector<uint8_t> back(data.size());
  ASSERT_TRUE((*session)->CopyIn(buffer, data));
  ASSERT_TRUE((*session)->CopyOut(buffer, back));
  EXPECT_TRUE(back == data);
  ASSERT_TRUE((*session)->Barrier());
  ASSERT_TRUE((*session)->Close());
}

// The client would load meaningless firmware into a real card.
TEST(Client, TalksToSimulatedCardsOnly) {
  Folder folder;
  const std::string path = folder.path + "/real";
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  // TinyGPU.app knows no PING.
  std::thread server([fd] {
    const int peer = accept(fd, nullptr, nullptr);
    uint8_t header[33];
    EXPECT_EQ(recv(peer, header, sizeof header, 0), 33);
    const auto reply = wire::EncodeReply({1, 0, 0});
    EXPECT_EQ(send(peer, reply.data(), reply.size(), MSG_NOSIGNAL), 17);
    uint8_t more;
    EXPECT_EQ(recv(peer, &more, 1, 0), 0);  // not another byte
    close(peer);
  });
  auto port = client::ConnectPort(Unix(path), {});
  server.join();
  close(fd);
  ASSERT_FALSE(port);
  EXPECT_NE(port.error().message.find("not a simulated card"), std::string::npos);
}

}  // namespace
}  // namespace tg::test
