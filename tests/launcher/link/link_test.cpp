// What travels between the launcher and the machines, and who may listen.
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/link/channel.h"
#include "deepspeed/launcher/link/hmac.h"
#include "deepspeed/launcher/link/tcp_link.h"

#include "tests/support/error_of.h"

namespace deepspeed::launcher {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

// The examples of FIPS 180-2 and RFC 4231.
TEST(Hmac, IsThatOfTheStandards) {
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(
      hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

CarriedJob any_job() {
  CarriedJob job;
  job.words = {"--flag", "", "a b\n'\"$x`y`\\", std::string("\xff\x01", 2), "h\xc3\xb6"};
  job.exports = {{"KEY", "v=w \n"}, {"EMPTY", ""}};
  job.working_folder = "/a b";
  job.secret = std::string("\0\xff", 2);
  job.addresses = {"10.0.0.1", "::1"};
  job.port = 1234;
  return job;
}

TEST(CarriedJob, ArrivesAsItWasWhateverItHolds) {
  const CarriedJob job = any_job();
  const std::string text = job.text();
  EXPECT_EQ(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="),
            std::string::npos);
  const CarriedJob back = CarriedJob::from_text(text);
  EXPECT_EQ(back.words, job.words);
  EXPECT_EQ(back.exports, job.exports);
  EXPECT_EQ(back.working_folder, job.working_folder);
  EXPECT_EQ(back.secret, job.secret);
  EXPECT_EQ(back.addresses, job.addresses);
  EXPECT_EQ(back.port, job.port);
  EXPECT_ERROR(UsageError, CarriedJob::from_text("e30="), "the description of the job is damaged");
}

TEST(CarriedJob, IsCutIntoVariablesThatTheKernelTakes) {
  CarriedJob job = any_job();
  job.words.push_back(std::string(500000, 'x'));
  Environment variables = job_variables(job);
  EXPECT_GT(variables.size(), 5u);
  for (const auto& [name, value] : variables) EXPECT_LT(value.size(), 128u * 1024) << name;
  variables["OTHER"] = "1";
  EXPECT_EQ(take_job(variables).words, job.words);
  EXPECT_EQ(variables, (Environment{{"OTHER", "1"}}));
  EXPECT_ERROR(UsageError, take_job(variables), "DEEPSPEED_JOB is not set");
}

TEST(Deposit, IsTakenOnceAndGoesWithItsObject) {
  const std::string id = "test" + std::to_string(::getpid());
  {
    const Deposit deposit(id, "text");
    EXPECT_ERROR(IoError, Deposit(id, "other"), "cannot write");
  }
  EXPECT_ERROR(IoError, take_deposit(id), "there is no description of the job");
  const Deposit deposit(id + "n0", "text");
  const Deposit another(id + "n1", "text");
  EXPECT_EQ(take_deposit(id), "text");
  EXPECT_EQ(take_deposit(id), "text");
  EXPECT_ERROR(IoError, take_deposit(id), "there is no description of the job");
  EXPECT_ERROR(UsageError, take_deposit("../x"), "expected letters and digits");
}

struct Pair {
  std::optional<Channel> here, there;
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    here.emplace(ends[0], ends[0]);
    there.emplace(ends[1], ends[1]);
  }
};

TEST(Channel, GivesWholeMessagesAndThenTheEnd) {
  Pair pair;
  pair.here->send({{"t", "one"}, {"text", "a\nb"}});
  pair.here->send({{"t", "two"}});
  const auto messages = pair.there->exchange();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0]["text"], "a\nb");
  EXPECT_FALSE(pair.there->is_closed());
  pair.here->send({{"t", "last"}});
  pair.here.reset();
  std::vector<Json> rest;
  while (!pair.there->is_closed()) {
    for (const Json& message : pair.there->exchange()) rest.push_back(message);
  }
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0]["t"], "last");
}

TEST(Channel, NeverWaitsForAnEndThatDoesNotRead) {
  Pair pair;
  const Json message = {{"t", "out"}, {"bytes", std::string(100000, 'x')}};
  for (int i = 0; i < 100; ++i) pair.here->send(message);
  EXPECT_GT(pair.here->pending_bytes(), 0u);
  size_t count = 0;
  while (count < 100) {
    pair.here->exchange();
    count += pair.there->exchange().size();
  }
  EXPECT_EQ(pair.here->pending_bytes(), 0u);
}

TEST(Channel, EndsAtWhatIsNoMessage) {
  for (const char* text : {"x\n", "[]\n", "{}\n", "{\"t\": 1}\n"}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Channel channel(ends[0], ends[0]);
    ASSERT_GT(::write(ends[1], text, strlen(text)), 0);
    EXPECT_TRUE(channel.exchange().empty());
    EXPECT_TRUE(channel.is_closed()) << text;
    ::close(ends[1]);
  }
}

std::vector<LinkListener::Guest> guests_of(LinkListener& listener, const std::function<bool()>& is_over) {
  std::vector<LinkListener::Guest> guests;
  while (guests.empty() && !is_over()) {
    std::vector<pollfd> entries;
    listener.append_poll_entries(entries);
    ::poll(entries.data(), entries.size(), 10);
    guests = listener.accept();
  }
  return guests;
}

TEST(TcpLink, StandsBetweenEndsThatKnowTheSecret) {
  LinkListener listener("secret");
  CarriedJob job;
  job.secret = "secret";
  job.port = listener.port();
  job.addresses = {"127.0.0.1"};
  std::optional<Channel> machine;
  std::thread connecting([&] { machine = connect_to_launcher(job, {{"t", "hello"}, {"node", 3}}); });
  auto guests = guests_of(listener, [] { return false; });
  connecting.join();
  ASSERT_EQ(guests.size(), 1u);
  EXPECT_EQ(guests[0].hello["node"], 3);
  EXPECT_EQ(guests[0].address, "127.0.0.1");
  guests[0].channel.send({{"t", "start"}});
  std::vector<Json> messages;
  while (messages.empty()) messages = machine->exchange();
  EXPECT_EQ(messages[0]["t"], "start");
}

TEST(TcpLink, DropsAStrangerAndIsNotTakenInByOne) {
  LinkListener listener("secret");
  CarriedJob job;
  job.secret = "another";
  job.port = listener.port();
  job.addresses = {"127.0.0.1"};
  std::atomic<bool> over = false;
  std::string text;
  std::thread connecting([&] {
    // Each try ends at once, as the other end closes; it gives up after its patience.
    text = error_of<IoError>([&] { connect_to_launcher(job, {{"t", "hello"}}); });
    over = true;
  });
  EXPECT_TRUE(guests_of(listener, [&] { return over.load(); }).empty());
  connecting.join();
  EXPECT_THAT(text, HasSubstr("the launcher cannot be reached at port"));
}

}  // namespace
}  // namespace deepspeed::launcher
