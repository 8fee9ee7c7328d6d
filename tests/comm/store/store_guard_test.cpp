// A store between machines only admits clients that know the job's secret.
#include "deepspeed/comm/store/store_guard.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"

#include "tests/comm/store/served_store.h"

namespace deepspeed::comm {
namespace {

using ::testing::HasSubstr;

struct Guarded : ::testing::Test {
  void SetUp() override { know("the job's secret"); }
  void TearDown() override { know(std::nullopt); }
  static void know(const std::optional<std::string>& secret) { env::set(kStoreSecretVariable, secret); }
};

TEST_F(Guarded, LetsInWhoKnowsTheSecret) {
  const Served served(address_of_loopback());
  Descriptor socket;
  EXPECT_EQ(served.joins_as(1, 2, socket), "");
  served.store->clone()->set("a", std::string("1"));
  EXPECT_EQ(served.store->get_to_str("a"), "1");
  const auto late = served.joins_as(1, 2, socket);
  EXPECT_THAT(late, HasSubstr("has all its ranks"));
}

TEST_F(Guarded, TellsBothEndsWhoseSecretIsMissing) {
  const Served served(address_of_loopback());
  Descriptor socket;
  know("another");
  EXPECT_THAT(served.joins_as(1, 2, socket),
              HasSubstr("does not know the job's secret (DEEPSPEED_STORE_SECRET)"));
  know(std::nullopt);
  EXPECT_THAT(served.joins_as(1, 2, socket), HasSubstr("rank 0 has a secret, this rank has none"));
  const Served open(address_of_loopback());
  know("the job's secret");
  EXPECT_THAT(open.joins_as(1, 2, socket), HasSubstr("rank 0 has no secret, this rank has one"));
  EXPECT_EQ(Served().joins_as(1, 2, socket), "") << "a socket of this user needs none";
}

TEST_F(Guarded, RefusesStrangers) {
  const Served served(address_of_loopback());
  const auto greeting = [](const std::vector<std::string>& more) {
    std::vector<std::string> texts = {kStoreGreeting};
    texts.insert(texts.end(), more.begin(), more.end());
    return encode_store_message({static_cast<uint8_t>(StoreCall::kJoin), -1, 0, texts});
  };
  const std::string set =
      encode_store_message({static_cast<uint8_t>(StoreCall::kSet), 0, 0, {"a", "stranger"}});
  const std::string none(64, '0');
  // No greeting, none with a proof, wrong proofs, and calls that are only valid after a greeting.
  const std::vector<std::string> said = {set,
                                         greeting({}) + set,
                                         greeting({"1"}) + set,
                                         greeting({"1"}) + greeting({none}) + set,
                                         greeting({""}) + greeting({""}) + set,
                                         greeting({"1", "2"}) + set};
  for (const std::string& bytes : said) {
    const auto socket = connection_to(served.address);
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(socket.get(), SHUT_WR);
    until([&] {
      char buffer[4096];
      const auto count = ::recv(socket.get(), buffer, sizeof(buffer), 0);
      return count == 0 || (count < 0 && errno != EAGAIN);
    });
  }
  EXPECT_FALSE(served.store->check({"a"}));
}

bool has_ended(const Descriptor& socket) {
  char byte = 0;
  const auto count = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN);
}

TEST_F(Guarded, DropsStrangersThatSayNothing) {
  const Served served(address_of_loopback());
  const auto silent = connection_to(served.address), slow = connection_to(served.address);
  ::send(slow.get(), "\x40\0\0", 3, MSG_NOSIGNAL);
  until([&] { return has_ended(silent) && has_ended(slow); });
  served.store->set("a", std::string("1"));
  EXPECT_EQ(served.store->get_to_str("a"), "1");
}

TEST_F(Guarded, LetsRanksInThoughStrangersHoldAllDescriptors) {
  // In a separate process with few descriptors, since the server's ends of connections need them too.
  const pid_t pid = ::fork();
  if (pid == 0) {
    const Served served(address_of_loopback());
    const rlimit few{200, 200};
    ::setrlimit(RLIMIT_NOFILE, &few);
    std::vector<Descriptor> strangers;
    std::string why_not;
    for (bool goes_on = true; goes_on;) {
      auto stranger = connect_to(served.address, {}, why_not);
      goes_on = static_cast<bool>(stranger);
      if (goes_on) strangers.push_back(std::move(stranger));
    }
    strangers.pop_back();  // for the rank's own end
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    auto socket = connect_to(served.address, deadline, why_not);
    const bool is_in = socket && greet_store(socket.get(), 1, 2, deadline, why_not);
    if (!is_in) std::fprintf(stderr, "%s\n", why_not.c_str());
    ::_exit(is_in && strangers.size() > 50 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Guarded, TakesAProofOnce) {
  // An eavesdropper may send the same messages again.
  const StoreGuard guard("the job's secret");
  const auto greeting = [](const std::string& text) {
    return StoreMessage{static_cast<uint8_t>(StoreCall::kJoin), 1, 2, {kStoreGreeting, text}};
  };
  StoreGuard::Shown first, second;
  const auto question = guard.check(first, greeting("1"));
  const auto proof = guard_proof("the job's secret", "client", "1", question->texts[0]);
  EXPECT_FALSE(guard.check(first, greeting(proof)));
  EXPECT_TRUE(guard.check(second, greeting("1")));
  EXPECT_THROW(guard.check(second, greeting(proof)), CommError);
  // The server's own proof is not valid for a client.
  StoreGuard::Shown third;
  const auto answer = guard.check(third, greeting("1"));
  EXPECT_THROW(guard.check(third, greeting(answer->texts[1])), CommError);
}

}  // namespace
}  // namespace deepspeed::comm
