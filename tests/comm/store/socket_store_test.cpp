// A job's store answers like c10d's own stores, only to this user, whatever its clients do.
#include "deepspeed/comm/store/socket_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/store/store_server.h"

#include "tests/comm/store/served_store.h"
#include "tests/support/error_of.h"

namespace deepspeed::comm {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<uint8_t>& value) { return {value.begin(), value.end()}; }

/// Returns the answers of each method of a store.
std::vector<std::string> answers_of(c10d::Store& store) {
  std::vector<std::string> said;
  const auto say = [&](const auto& value) { said.push_back(::testing::PrintToString(value)); };
  store.set("a", std::string("1"));
  say(store.get_to_str("a"));
  store.set("empty", std::string());
  store.set("zeros", std::vector<uint8_t>{0, 0, 255});
  say(store.get("zeros"));
  say(store.get("empty"));
  say(store.compareSet("a", "2", "3"));
  say(store.compareSet("a", "1", "4"));
  say(store.compareSet("new", "some", "5"));
  say(store.check({"new"}));
  say(store.compareSet("new", "", "5"));
  say(store.get_to_str("new"));
  say(store.add("count", 3));
  say(store.add("count", -5));
  say(store.get_to_str("count"));
  say(store.check({"a", "count"}));
  say(store.check({"a", "missing"}));
  say(store.getNumKeys());
  say(store.deleteKey("new"));
  say(store.deleteKey("new"));
  store.append("a", bytes("bc"));
  store.append("other", bytes("d"));
  say(store.multiGet({"a", "other"}));
  store.multiSet({"x", "y"}, {bytes("1"), bytes("2")});
  say(store.multiGet({"y", "x"}));
  store.wait({"x", "y"});
  store.wait({"x"}, 1ms);
  say(store.hasExtendedApi());
  store.queuePush("queue", bytes("first"));
  store.queuePush("queue", bytes("second"));
  say(store.queueLen("queue"));
  say(store.check({"queue"}));
  say(text(store.queuePop("queue", true)));
  say(text(store.queuePop("queue", false)));
  say(store.queueLen("queue"));
  auto keys = store.listKeys();
  std::sort(keys.begin(), keys.end());
  say(keys);
  return said;
}

TEST(SocketStore, AnswersAsTheStoresOfC10dDo) {
  const auto expected = answers_of(*c10::make_intrusive<c10d::HashStore>());
  EXPECT_EQ(answers_of(*Served().store), expected);
  EXPECT_EQ(answers_of(*Served(address_of_loopback()).store), expected);
  const Served prefixed;
  c10d::PrefixStore("prefix", prefixed.store).set("a", std::string("1"));
  EXPECT_EQ(prefixed.store->listKeys(), std::vector<std::string>{"prefix/a"});
}

TEST(SocketStore, SaysWhichKeysDidNotComeInTime) {
  const Served served;
  EXPECT_THAT(error_of<c10::DistStoreError>([&] {
                served.store->wait({"a", "b"}, 20ms);
              }),
              HasSubstr("wait timeout after 20ms, keys: a, b"));
  served.store->setTimeout(30ms);
  EXPECT_THAT(error_of<c10::DistStoreError>([&] { served.store->get("a"); }),
              HasSubstr("after 30ms, keys: a"));
  EXPECT_THAT(error_of<c10::DistStoreError>([&] { served.store->multiGet({"c"}); }), HasSubstr("keys: c"));
  EXPECT_THAT(error_of<c10::DistStoreError>([&] { served.store->queuePop("q", true); }),
              HasSubstr("keys: q"));
  EXPECT_THAT(error_of<c10::DistQueueEmptyError>([&] { served.store->queuePop("q", false); }),
              HasSubstr("'q'"));
  served.store->set("a", std::string("no number"));
  EXPECT_THAT(error_of<c10::DistStoreError>([&] { served.store->add("a", 1); }), HasSubstr("not a number"));
  EXPECT_THAT(error_of<CommError>([&] { served.store->set("a", std::string((64 << 20) + 1, 'x')); }),
              HasSubstr("expected 67108864 at most"));
  EXPECT_EQ(served.store->get_to_str("a"), "no number");
}

TEST(SocketStore, AnswersCallsThatWaitOnceTheirKeysCome) {
  const Served served;
  const auto waits = served.store->clone(), gets = served.store->clone(), pops = served.store->clone();
  std::string got, popped;
  std::thread waiter([&] { waits->wait({"a", "b"}); });
  std::thread getter([&] { got = gets->get_to_str("b"); });
  std::thread popper([&] { popped = text(pops->queuePop("queue", true)); });
  std::this_thread::sleep_for(20ms);
  served.store->multiSet({"b", "a"}, {bytes("2"), bytes("1")});
  served.store->queuePush("queue", bytes("x"));
  waiter.join();
  getter.join();
  popper.join();
  EXPECT_EQ(got + popped, "2x");
  EXPECT_EQ(served.store->queueLen("queue"), 0);
}

TEST(SocketStore, CountsForAllThreadsOfAllClients) {
  const Served served;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, store = i % 2 == 0 ? served.store : served.store->clone()] {
      for (int n = 0; n < 200; ++n) store->add("count", 1);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(served.store->add("count", 0), 1600);
}

TEST(SocketStore, OutlivesClientsThatDieSendGarbageOrDoNotRead) {
  const Served served;
  const auto send = [&](bool greets, const std::string& bytes) {
    auto socket = connection_to(served.address);
    std::string why_not;
    if (greets && !greet_store(socket.get(), -1, 0, {}, why_not)) ADD_FAILURE() << why_not;
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
    return socket;
  };
  const auto is_dropped = [](const Descriptor& socket) {
    char byte = 0;
    net::wait_for_socket(socket.get(), POLLIN, std::chrono::steady_clock::now() + 60s);
    return ::recv(socket.get(), &byte, 1, 0) <= 0;
  };
  const auto wait_for_a = encode_store_message({static_cast<uint8_t>(StoreCall::kWait), 0, 0, {"a"}});
  std::string wrong_count = wait_for_a;
  wrong_count[4 + 17] = char(0xff);
  EXPECT_TRUE(is_dropped(send(false, "GET / HTTP/1.1\r\n\r\n")));
  EXPECT_TRUE(is_dropped(send(false, wait_for_a)));                           // not greeted
  EXPECT_TRUE(is_dropped(send(true, std::string(4, '\xff'))));                // announces 4 GB
  EXPECT_TRUE(is_dropped(send(true, wrong_count)));                           // more texts than bytes
  EXPECT_TRUE(is_dropped(send(true, std::string("\1\0\0\0\x63", 5))));        // ends early
  EXPECT_TRUE(is_dropped(send(true, encode_store_message({99, 0, 0, {}}))));  // not a call
  EXPECT_TRUE(
      is_dropped(send(true, encode_store_message({static_cast<uint8_t>(StoreCall::kSet), 0, 0, {"a"}}))));
  send(true, wait_for_a);                // dies while it waits
  send(true, wait_for_a.substr(0, 10));  // dies in the middle
  const auto silent = send(true, wait_for_a.substr(0, 10));
  // Asks for more than fits into the buffers, and reads nothing.
  served.store->set("large", std::string(1 << 20, 'x'));
  std::string gets;
  for (int i = 0; i < 40; ++i)
    gets += encode_store_message({static_cast<uint8_t>(StoreCall::kGet), 0, 0, {"large"}});
  const auto deaf = send(true, gets);
  const auto begin = std::clock();
  const auto other = served.store->clone();
  other->set("a", std::string("1"));
  EXPECT_EQ(served.store->get_to_str("a"), "1");
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 5) << "the server spins";
}

TEST(SocketStore, TellsItsClientsThatTheServerHasEnded) {
  auto served = std::make_unique<Served>();
  const auto client = served->store->clone(), idle = served->store->clone();
  std::string error;
  std::thread waiter([&] { error = error_of<c10::DistNetworkError>([&] { client->wait({"never"}); }); });
  std::this_thread::sleep_for(20ms);
  const auto address = served->address;
  // A child has all sockets of this process, like a data loader's worker.
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  served.reset();
  waiter.join();
  EXPECT_THAT(error, HasSubstr("which rank 0 holds, is lost"));
  EXPECT_THAT(error_of<c10::DistNetworkError>([&] { idle->check({"a"}); }), HasSubstr("is lost"));
  EXPECT_THAT(error_of<c10::DistNetworkError>([&] { idle->clone(); }), HasSubstr("cannot be reached again"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(net::listen_at(address)) << std::strerror(errno);
}

TEST(StoreServer, ReleasesItsAddressAndKeepsItsClients) {
  auto listener = net::listen_at(own_address());
  net::SocketAddress address;
  address.length = sizeof(address.address);
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address.address), &address.length);
  StoreServer server(std::move(listener), 2);
  auto socket = connection_to(address);
  std::string why_not;
  EXPECT_TRUE(greet_store(socket.get(), 1, 2, {}, why_not)) << why_not;
  const auto store = c10::make_intrusive<SocketStore>(address, std::move(socket), 60s);
  EXPECT_FALSE(net::listen_at(address));
  server.stop_listening();
  EXPECT_TRUE(net::listen_at(address)) << std::strerror(errno);
  server.stop_listening();
  EXPECT_EQ(store->add("count", 1), 1);
}

TEST(SocketStore, LeavesConnectionsAndServerAloneInAFork) {
  auto* const served = new Served;
  const pid_t child = ::fork();
  if (child == 0) {
    delete served;
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  served->store->set("a", std::string("1"));
  EXPECT_EQ(served->store->clone()->get_to_str("a"), "1");
  delete served;
}

// If ranks could join twice, two jobs, or a job and its predecessor, would use each other's keys.
TEST(StoreServer, LetsEachRankInOnce) {
  const Served served(own_address(), 3);
  Descriptor one, again, two, late;
  EXPECT_THAT(served.joins_as(1, 2, one), HasSubstr("a world of 3 ranks, expected 2"));
  EXPECT_THAT(served.joins_as(0, 3, one), HasSubstr("another process has joined as rank 0"));
  EXPECT_EQ(served.joins_as(1, 3, one), "");
  EXPECT_THAT(served.joins_as(1, 3, again), HasSubstr("another process has joined as rank 1"));
  one = Descriptor();  // it dies while others are missing, and is restarted
  until([&] { return served.joins_as(1, 3, again).empty(); });
  EXPECT_EQ(served.joins_as(2, 3, two), "");
  EXPECT_THAT(served.joins_as(1, 3, late), HasSubstr("has all its ranks"));
  two = Descriptor();
  EXPECT_THAT(served.joins_as(2, 3, late), HasSubstr("choose another MASTER_PORT"));
}

/// Returns a store whose clones connect to `address`, which has no server yet.
StorePtr store_at(const net::SocketAddress& address) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ::close(ends[1]);
  return c10::make_intrusive<SocketStore>(address, Descriptor(ends[0]), 60s);
}

// A busy machine accepts late. Until then, no more connections than allowed can wait.
TEST(SocketStore, ReconnectsIfTooManyWaitToBeLetIn) {
  const net::SocketAddress address = own_address();
  Descriptor listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(listener.get(), address.get(), address.length), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  std::vector<Descriptor> waiting;
  std::string why_not;
  for (auto socket = net::connect_to(address, {}, why_not); socket;
       socket = net::connect_to(address, {}, why_not))
    waiting.push_back(std::move(socket));
  EXPECT_EQ(errno, EAGAIN) << why_not;
  std::string said = "nothing";
  std::thread client([&] {
    try {
      said = store_at(address)->clone()->add("count", 1) == 1 ? "" : "another number";
    } catch (const std::exception& error) {
      said = error.what();
    }
  });
  std::this_thread::sleep_for(50ms);  // it has found the queue full by then, or connects later
  const StoreServer server(std::move(listener), 2);
  client.join();
  EXPECT_EQ(said, "");
}

TEST(SocketStore, ReconnectsIfItsGreetingWasNotRead) {
  const net::SocketAddress address = own_address();
  Descriptor listener = net::listen_at(address);
  ASSERT_TRUE(listener);
  std::string said = "nothing";
  std::thread client([&] {
    try {
      said = store_at(address)->clone()->add("count", 1) == 1 ? "" : "another number";
    } catch (const std::exception& error) {
      said = error.what();
    }
  });
  for (int times = 0; times < 2; ++times) {
    // The greeting has arrived when the connection is closed, so the connection is reset.
    const Descriptor taken(::accept(listener.get(), nullptr, nullptr));
    pollfd greeting{taken.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&greeting, 1, -1), 1);
  }
  const StoreServer server(std::move(listener), 2);
  client.join();
  EXPECT_EQ(said, "");
}

// The error names at once what blocked the store.
TEST(SocketStore, DoesNotReconnectIfTheServerIsGoneOrRefuses) {
  const net::SocketAddress address = own_address();
  EXPECT_THAT(error_of<c10::DistNetworkError>([&] { store_at(address)->clone(); }),
              HasSubstr("cannot be reached again"));
  const Served served(own_address(), 3);
  std::string why_not;
  EXPECT_FALSE(reach_store(served.address, 0, 3, {}, why_not));
  EXPECT_THAT(why_not, HasSubstr("another process has joined as rank 0"));
}

class AnotherUser : public ::testing::Test {
 protected:
  static constexpr uid_t kNobody = 65534;
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  }
  /// Returns the exit status of a child that runs as the user nobody.
  static int status_of(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::setgid(kNobody) == 0 && ::setuid(kNobody) == 0 ? body() : 99);
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(AnotherUser, LearnsNothingFromTheStore) {
  const Served served;
  served.store->set("secret", std::string("1"));
  const int status = status_of([&] {
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    if (::connect(socket.get(), served.address.get(), served.address.length) != 0) return 1;
    const std::string bytes =
        encode_store_message({static_cast<uint8_t>(StoreCall::kJoin), -1, 0, {kStoreGreeting}}) +
        encode_store_message({static_cast<uint8_t>(StoreCall::kSet), 0, 0, {"secret", "2"}}) +
        encode_store_message({static_cast<uint8_t>(StoreCall::kList), 0, 0, {}});
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, 0) > 0 ? 2 : 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(served.store->get_to_str("secret"), "1");
}

TEST_F(AnotherUser, IsNotMistakenForTheServer) {
  const auto address = own_address();
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    if (::setuid(kNobody) != 0) ::_exit(1);
    const auto socket = net::listen_at(address);
    static_cast<void>(!::write(ready[1], "x", 1));
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  std::string why_not, who;
  EXPECT_FALSE(net::connect_to(address, {}, why_not));
  EXPECT_THAT(why_not, HasSubstr("another user of this machine (uid 65534) holds the name"));
  EXPECT_TRUE(net::is_of_another_user(address, who));
  EXPECT_FALSE(net::listen_at(address));
  ::kill(squatter, SIGKILL);
  ::waitpid(squatter, nullptr, 0);
  for (const int end : ready) ::close(end);
  EXPECT_TRUE(net::listen_at(address)) << std::strerror(errno);
}

}  // namespace
}  // namespace deepspeed::comm
