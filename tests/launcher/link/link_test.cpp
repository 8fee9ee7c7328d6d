// What travels between the launcher and the machines, and who may listen.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/text.h"
#include "deepspeed/launcher/link/channel.h"
#include "deepspeed/launcher/link/messages.h"
#include "deepspeed/launcher/link/tcp_link.h"

#include "tests/support/error_of.h"

namespace deepspeed::launcher {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kAtOnce(0);

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
  for (const auto& [key, wrong] :
       {std::pair("words", "[1]"), std::pair("exports", "[\"a\"]"), std::pair("addresses", "[1]"),
        std::pair("folder", "7"), std::pair("secret", "null"), std::pair("port", "\"7\"")}) {
    Json json = Json::parse(decode_base64(text).value());
    json[key] = Json::parse(wrong);
    EXPECT_ERROR(UsageError, CarriedJob::from_text(encode_base64(json.dump())),
                 "the description of the job is damaged");
    json.erase(key);
    EXPECT_ERROR(UsageError, CarriedJob::from_text(encode_base64(json.dump())),
                 "the description of the job is damaged");
  }
  EXPECT_ERROR(UsageError, CarriedJob::from_text(text.substr(0, text.size() / 2)), "is damaged");
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

TEST(CarriedJob, KnowsTheNamesOfItsVariables) {
  for (const auto& [name, value] : job_variables(any_job())) EXPECT_TRUE(is_job_variable(name)) << name;
  EXPECT_TRUE(is_job_variable("DEEPSPEED_JOB_17"));
  for (const char* name : {"DEEPSPEED_JOBS", "DEEPSPEED", "JOB", ""})
    EXPECT_FALSE(is_job_variable(name)) << name;
}

TEST(Deposit, IsTakenOnceAndGoesWithItsObject) {
  const std::string id = "test" + std::to_string(::getpid());
  {
    const Deposit deposit(id, "text");
    EXPECT_ERROR(IoError, Deposit(id, "other"), "cannot write");
  }
  EXPECT_ERROR(IoError, take_deposit(id, kAtOnce), "there is no description of the job");
  const Deposit deposit(id + "n0", "text");
  const Deposit another(id + "n1", "text");
  EXPECT_EQ(take_deposit(id, kAtOnce), "text");
  EXPECT_EQ(take_deposit(id, kAtOnce), "text");
  EXPECT_ERROR(IoError, take_deposit(id, kAtOnce), "there is no description of the job");
  // Files of others in its place: a pipe that nobody writes to, and a link.
  const std::string pipe = "/tmp/deepspeed_job_" + id + "n2", link = "/tmp/deepspeed_job_" + id + "n3";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  ASSERT_EQ(::symlink("/etc/passwd", link.c_str()), 0);
  EXPECT_ERROR(IoError, take_deposit(id, kAtOnce), "there is no description of the job");
  ::unlink(pipe.c_str());
  ::unlink(link.c_str());
  const Deposit private_one(id + "n4", "text");
  struct stat status {};
  ASSERT_EQ(::stat(("/tmp/deepspeed_job_" + id + "n4").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_ERROR(UsageError, take_deposit("../x", kAtOnce), "expected letters and digits");
}

TEST(Deposit, IsWaitedForUntilItIsWhole) {
  const std::string id = "late" + std::to_string(::getpid()), path = "/tmp/deepspeed_job_" + id;
  const int part = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  ASSERT_EQ(::write(part, "te", 2), 2);
  EXPECT_ERROR(IoError, take_deposit(id, kAtOnce), "there is no description of the job");
  std::string taken;
  std::thread taking([&] { taken = take_deposit(id, std::chrono::minutes(10)); });
  EXPECT_EQ(::write(part, "xt", 2), 2);
  EXPECT_EQ(::write(part, "\n", 1), 1);
  ::close(part);
  taking.join();
  EXPECT_EQ(taken, "text");
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(Deposit, StopsWaitingWhenNobodyReadsItsOutput) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    for (const int end : ends) ::close(end);
    try {
      take_deposit("nobody" + std::to_string(::getpid()), std::chrono::hours(10));
    } catch (const IoError&) {
      ::_exit(7);
    }
    ::_exit(0);
  }
  for (const int end : ends) ::close(end);  // as when ssh has ended
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

struct Pair {
  std::optional<Channel> here, there;
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    here.emplace(Descriptor(ends[0]));
    there.emplace(Descriptor(ends[1]));
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

TEST(Channel, StaysOpenWhenItReplacesAClosedOne) {
  std::vector<Channel> heres, theres;
  for (int i = 0; i < 2; ++i) {
    Pair pair;
    heres.push_back(*std::move(pair.here));
    theres.push_back(*std::move(pair.there));
  }
  theres[0].close();
  EXPECT_TRUE(heres[0].exchange().empty());
  EXPECT_TRUE(heres[0].is_closed());
  std::erase_if(heres, [](const Channel& channel) { return channel.is_closed(); });
  theres[1].send({{"t", "late"}});
  const auto messages = heres[0].exchange();
  EXPECT_FALSE(heres[0].is_closed());
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].at("t"), "late");
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

void write_all(int fd, const std::string& bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t size =
        ::send(fd, bytes.data() + written, bytes.size() - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size <= 0) return;
    written += static_cast<size_t>(size);
  }
}

/// A channel, and the bare descriptor of an end that may lie.
struct BarePair {
  std::optional<Channel> channel;
  int bare = -1;
  BarePair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    channel.emplace(Descriptor(ends[0]));
    bare = ends[1];
  }
  ~BarePair() { ::close(bare); }
  /// Gives what the channel has sent.
  std::string sent() const {
    char bytes[65536];
    const ssize_t size = ::recv(bare, bytes, sizeof(bytes), MSG_DONTWAIT);
    return {bytes, size > 0 ? static_cast<size_t>(size) : 0};
  }
};

TEST(Channel, EndsAtALineThatIsTooLong) {
  for (const bool ends : {false, true}) {
    BarePair pair;
    pair.channel->limit_lines(1000);
    write_all(pair.bare, "{\"t\": \"" + std::string(2000, 'x') + (ends ? "\"}\n" : ""));
    EXPECT_TRUE(pair.channel->exchange().empty());
    EXPECT_TRUE(pair.channel->is_closed());
    EXPECT_EQ(pair.channel->fault(), "it has sent a line that is no message, or is too long");
  }
}

TEST(Channel, SaysWhetherItsConnectionEndedInTheMiddleOfAMessage) {
  for (const auto& [text, expected] :
       {std::pair("", "its connection ended"),
        std::pair("{\"t\": ", "its connection ended in the middle of a message")}) {
    BarePair pair;
    write_all(pair.bare, text);
    ::shutdown(pair.bare, SHUT_WR);
    EXPECT_TRUE(pair.channel->exchange().empty());
    EXPECT_TRUE(pair.channel->exchange().empty());  // the end, after what came before it
    EXPECT_TRUE(pair.channel->is_closed());
    EXPECT_EQ(pair.channel->fault(), expected);
  }
}

TEST(Channel, IsNotHeldUpByAnEndThatSendsWithoutPause) {
  BarePair pair;
  std::atomic<bool> over = false;
  std::thread sending([&] {
    const std::string line = "{\"t\": \"x\"}\n";
    std::string many;
    for (int i = 0; i < 5000; ++i) many += line;
    while (!over) write_all(pair.bare, many);
  });
  for (int i = 0; i < 20; ++i) pair.channel->exchange();  // each comes back
  over = true;
  pair.channel->close();
  sending.join();
}

TEST(Channel, SealsWhatItSends) {
  Pair pair;
  pair.here->seal("one", "two");
  pair.there->seal("two", "one");
  for (int i = 0; i < 3; ++i) {
    pair.here->send({{"t", "question"}, {"i", i}});
    ASSERT_EQ(pair.there->exchange().at(0)["i"], i);
    pair.there->send({{"t", "answer"}, {"i", i}});
    ASSERT_EQ(pair.here->exchange().at(0)["i"], i);
  }
}

TEST(Channel, TakesNoForeignLineOnceItIsSealed) {
  BarePair source;
  source.channel->seal("key", "other");
  source.channel->send({{"t", "one"}});
  const std::string first = source.sent();
  source.channel->send({{"t", "two"}});
  const std::string second = source.sent();
  ASSERT_EQ(first.substr(32), "{\"t\":\"one\"}\n");
  const auto taken_of = [](const std::string& bytes) {
    BarePair pair;
    pair.channel->seal("other", "key");
    write_all(pair.bare, bytes);
    const size_t count = pair.channel->exchange().size();
    return std::make_pair(count, pair.channel->is_closed());
  };
  EXPECT_EQ(taken_of(first + second), std::make_pair(size_t{2}, false));
  EXPECT_EQ(taken_of(first + first), std::make_pair(size_t{1}, true)) << "sent again";
  EXPECT_EQ(taken_of(second), std::make_pair(size_t{0}, true)) << "one left out";
  EXPECT_EQ(taken_of("{\"t\":\"one\"}\n"), std::make_pair(size_t{0}, true)) << "no seal";
  std::string changed = first;
  changed[changed.find("one")] = 'O';
  EXPECT_EQ(taken_of(changed), std::make_pair(size_t{0}, true)) << "changed";
  const std::string back = first.substr(0, 32) + second.substr(32);
  EXPECT_EQ(taken_of(back), std::make_pair(size_t{0}, true)) << "the seal of another line";
}

TEST(Channel, EndsAtWhatIsNoMessage) {
  for (const char* text : {"x\n", "[]\n", "{}\n", "{\"t\": 1}\n"}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Channel channel{Descriptor(ends[0])};
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
  Hello hello;
  hello.number = 3;
  std::thread connecting([&] { machine = connect_to_launcher(job, hello); });
  auto guests = guests_of(listener, [] { return false; });
  connecting.join();
  ASSERT_EQ(guests.size(), 1u);
  EXPECT_EQ(guests[0].hello.number, 3);
  EXPECT_EQ(guests[0].address, "127.0.0.1");
  guests[0].channel.send(Start{"address", 7, 1});
  std::vector<Json> messages;
  while (messages.empty()) messages = machine->exchange();
  EXPECT_EQ(as<Start>(messages[0]).value().port, 7);
}

int connected_socket(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

/// Whether the listener closes the connection while it is served.
bool is_dropped(LinkListener& listener, int socket) {
  for (;;) {
    listener.accept();
    pollfd entry{socket, POLLIN, 0};
    ::poll(&entry, 1, 10);
    char bytes[4096];
    const ssize_t size = ::recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (size == 0 || (size < 0 && errno != EAGAIN)) return true;
  }
}

TEST(TcpLink, DropsWhatStrangersSay) {
  LinkListener listener("secret");
  const std::string lines[] = {
      std::string(100000, 'x'),                                                           // without an end
      "GET / HTTP/1.0\r\n\r\n",                                                           // another protocol
      "{\"t\":\"hello\",\"node\":0}\n",                                                   // no proof at all
      "{\"t\":\"proof\",\"number\":\"0\",\"proof\":\"" + std::string(64, '0') + "\"}\n",  // a wrong one
      "{\"t\":\"proof\",\"number\":1,\"proof\":[]}\n",                                    // of other types
      "{\"t\":\"proof\",\"number\":\"0\"}\n",                                             // no proof in it
      std::string(2000, '[') + std::string(2000, ']') + "\n",                             // nested deeply
  };
  for (const std::string& line : lines) {
    const int stranger = connected_socket(listener.port());
    write_all(stranger, line);
    EXPECT_TRUE(is_dropped(listener, stranger)) << line.substr(0, 60);
    ::close(stranger);
  }
}

TEST(TcpLink, IsNotHeldUpByStrangersWhoSayNothing) {
  LinkListener listener("secret");
  std::vector<int> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(connected_socket(listener.port()));
    if (i % 50 == 0) listener.accept();
  }
  CarriedJob job;
  job.secret = "secret";
  job.port = listener.port();
  job.addresses = {"127.0.0.1"};
  std::optional<Channel> machine;
  std::thread connecting([&] { machine = connect_to_launcher(job, Hello{}); });
  EXPECT_EQ(guests_of(listener, [] { return false; }).size(), 1u);
  connecting.join();
  for (const int stranger : strangers) ::close(stranger);
}

TEST(Channel, SkipsWhatAShellPrintsBeforeTheFirstMessage) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Channel channel{Descriptor(ends[0])};
  channel.skip_noise();
  write_all(ends[1], "Welcome!\n\n{\"a\": 1}\nlast login\n{\"t\":\"hello\"}\n");
  const auto messages = channel.exchange();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(kind_of(messages[0]), "hello");
  EXPECT_EQ(channel.noise(), "Welcome!\n{\"a\": 1}\nlast login");
  EXPECT_FALSE(channel.is_closed());
  write_all(ends[1], "more\n");
  EXPECT_TRUE(channel.exchange().empty());
  EXPECT_TRUE(channel.is_closed()) << "a message had come";
  ::close(ends[1]);
}

TEST(Channel, DoesNotSkipForEver) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Channel channel{Descriptor(ends[0])};
  channel.skip_noise();
  int lines = 0;
  for (; !channel.is_closed() && lines < 200; ++lines) {
    write_all(ends[1], std::string(1023, 'x') + "\n");
    EXPECT_TRUE(channel.exchange().empty());
  }
  EXPECT_EQ(lines, 65);
  EXPECT_EQ(channel.noise().size(), 200u);
  ::close(ends[1]);
}

TEST(TcpLink, TakesNoAnswerOfAnEarlierConnection) {
  // Someone between both ends passes the words of one connection on, and says them again in the next one.
  LinkListener listener("secret");
  const auto proof_of = [](const std::string& challenge) {
    const std::string number = Json::parse(challenge)["number"];
    const std::string proof = net::Prover("secret", "link").proof(net::End::kClient, {"0", number});
    return to_json(Proof{"0", proof}).dump() + "\n";
  };
  const auto line_of = [&](int socket) {
    std::string line;
    char byte = 0;
    while (byte != '\n') {
      listener.accept();
      const ssize_t size = ::recv(socket, &byte, 1, MSG_DONTWAIT);
      if (size == 1) line += byte;
      if (size == 0) break;  // the listener has dropped it
    }
    return line;
  };
  const int first = connected_socket(listener.port());
  const std::string proof = proof_of(line_of(first));
  write_all(first, proof);
  EXPECT_THAT(line_of(first), HasSubstr("proof"));
  const int second = connected_socket(listener.port());
  line_of(second);
  write_all(second, proof);
  EXPECT_TRUE(is_dropped(listener, second));
  // A foreign line after the right proof.
  write_all(first, "{\"t\":\"hello\",\"node\":0}\n");
  EXPECT_TRUE(is_dropped(listener, first));
  ::close(first);
  ::close(second);
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
    text = error_of<IoError>([&] { connect_to_launcher(job, Hello{}, std::chrono::milliseconds(500)); });
    over = true;
  });
  EXPECT_TRUE(guests_of(listener, [&] { return over.load(); }).empty());
  connecting.join();
  EXPECT_THAT(text, HasSubstr("the launcher cannot be reached at port"));
}

}  // namespace
}  // namespace deepspeed::launcher
