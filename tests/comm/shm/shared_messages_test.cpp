// Messages over shared memory between threads: sizes, tags, crossing sends, peers that end.
#include <cstring>
#include <future>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "deepspeed/comm/shm/messages.h"

#include "tests/comm/shm/thread_ranks.h"
#include "tests/support/error_of.h"

namespace deepspeed::comm::shm {
namespace {

using testing::run_members;

/// A message under way. Errors cross threads as texts: ThreadSanitizer does not see how the standard library
/// counts who holds an exception.
class PendingMessage {
 public:
  explicit PendingMessage(std::future<std::string> error) : error_(std::move(error)) {}
  void get() {
    const std::string text = error_.get();
    if (!text.empty()) throw CommError(text);
  }

 private:
  std::future<std::string> error_;
};

class Letterbox {
 public:
  explicit Letterbox(Messages& messages) : messages_(messages) {}

  PendingMessage send(const std::vector<char>& data, int peer, int tag,
                      std::chrono::milliseconds time = std::chrono::minutes(1)) {
    auto [future, done] = promised();
    messages_.send(data.data(), data.size(), peer, tag, Clock::now() + time, done);
    return PendingMessage(std::move(future));
  }
  PendingMessage receive(std::vector<char>& data, int peer, int tag,
                         std::chrono::milliseconds time = std::chrono::minutes(1)) {
    auto [future, done] = promised();
    messages_.receive(data.data(), data.size(), peer, tag, Clock::now() + time, done);
    return PendingMessage(std::move(future));
  }

 private:
  static std::pair<std::future<std::string>, Messages::Done> promised() {
    auto promise = std::make_shared<std::promise<std::string>>();
    auto future = promise->get_future();
    return {std::move(future), [promise](std::exception_ptr error) {
              std::string text;
              try {
                if (error) std::rethrow_exception(error);
              } catch (const std::exception& failure) {
                text = failure.what();
              }
              promise->set_value(text);
            }};
  }
  Messages& messages_;
};

std::vector<char> content_of(size_t bytes, int seed) {
  std::vector<char> content(bytes);
  for (size_t i = 0; i < bytes; ++i)
    content[i] = static_cast<char>((i * 31 + static_cast<size_t>(seed)) % 251);
  return content;
}

TEST(SharedMessages, ArriveWholeBothWaysAtOnce) {
  run_members(3, [](Member& member) {
    Messages messages(member);
    Letterbox box(messages);
    const int next = (member.rank() + 1) % 3, before = (member.rank() + 2) % 3;
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{4097}, size_t{5'000'011}}) {
      const auto own = content_of(bytes, member.rank());
      std::vector<char> forward(bytes), backward(bytes);
      // All send before anyone receives.
      auto sent = box.send(own, next, 1), back = box.send(own, before, 2);
      auto one = box.receive(forward, before, 1), two = box.receive(backward, next, 2);
      one.get();
      two.get();
      sent.get();
      back.get();
      EXPECT_EQ(forward, content_of(bytes, before));
      EXPECT_EQ(backward, content_of(bytes, next));
    }
  });
}

TEST(SharedMessages, MeetByTheirTagsAndKeepTheOrderOfOne) {
  run_members(2, [](Member& member) {
    Messages messages(member);
    Letterbox box(messages);
    std::vector<std::vector<char>> contents;
    std::vector<PendingMessage> futures;
    // More letters than a socket holds.
    for (int i = 0; i < 600; ++i) {
      contents.push_back(member.rank() == 0 ? content_of(2000, i) : std::vector<char>(2000));
    }
    if (member.rank() == 0) {
      for (int i = 0; i < 600; ++i) futures.push_back(box.send(contents[static_cast<size_t>(i)], 1, i % 3));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      for (const int tag : {2, 0, 1}) {
        for (int i = tag; i < 600; i += 3)
          futures.push_back(box.receive(contents[static_cast<size_t>(i)], 0, tag));
      }
    }
    for (auto& future : futures) future.get();
    for (int i = 0; i < 600; ++i) EXPECT_EQ(contents[static_cast<size_t>(i)], content_of(2000, i)) << i;
  });
}

TEST(SharedMessages, FailIfSizesDiffer) {
  run_members(2, [](Member& member) {
    Messages messages(member);
    Letterbox box(messages);
    std::vector<char> data(static_cast<size_t>(10 + member.rank()));
    if (member.rank() == 0) return box.send(data, 1, 5).get();
    EXPECT_ERROR(CommError, box.receive(data, 0, 5).get(), "has 10 bytes, but 11 are expected");
  });
}

TEST(SharedMessages, FailAfterTheirTimeAndNameThePeer) {
  run_members(2, [](Member& member) {
    Messages messages(member);
    Letterbox box(messages);
    std::vector<char> data(10);
    if (member.rank() == 0) {
      EXPECT_ERROR(CommError, box.receive(data, 1, 5, std::chrono::milliseconds(200)).get(),
                   "rank 1 (process ", "sent no message with the tag 5");
    }
    Collectives(member).barrier(testing::same_call());
  });
}

TEST(SharedMessages, FailIfThePeerLeaves) {
  run_members(2, [](Member& member) {
    Messages messages(member);
    Letterbox box(messages);
    std::vector<char> data(10);
    if (member.rank() == 1) return;
    EXPECT_ERROR(CommError, box.receive(data, 1, 5).get(), "rank 1 (process ", "left the group");
  });
}

TEST(SharedMessages, EndWithTheGroup) {
  run_members(2, [](Member& member) {
    Messages messages(member);
    Letterbox box(messages);
    std::vector<char> data(10);
    if (member.rank() == 0) {
      auto waiting = box.receive(data, 1, 5);
      member.give_up();
      messages.wake();
      EXPECT_ERROR(CommError, waiting.get(), "the group was given up");
    } else {
      EXPECT_ERROR(CommError, box.receive(data, 0, 5).get(), "gave up the group");
    }
  });
}

/// The head of a packet, as a rank that lies writes it.
struct PacketHead {
  uint32_t kind = 0;  // 0: letter, 1: letter with content, 2: further content, 3: received
  int32_t tag = 5;
  uint64_t order = 1;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

/// What a rank is told that waits for ten bytes of one that writes these packets instead.
std::string told_of_packets(const std::vector<std::pair<PacketHead, size_t>>& packets) {
  std::string told;
  run_members(2, [&](Member& member) {
    if (member.rank() == 1) {
      for (const auto& [head, content_bytes] : packets) {
        std::vector<char> packet(sizeof(head) + content_bytes);
        std::memcpy(packet.data(), &head, sizeof(head));
        ::send(member.peer(0).socket(), packet.data(), packet.size(), MSG_NOSIGNAL);
      }
      Collectives(member).barrier(testing::same_call());
      return;
    }
    Messages messages(member);
    Letterbox box(messages);
    std::vector<char> data(10);
    told = testing::error_of<CommError>([&] { box.receive(data, 1, 5).get(); });
    Collectives(member).barrier(testing::same_call());
  });
  return told;
}

TEST(SharedMessages, NameAPeerThatSendsInvalidPackets) {
  const auto expect_refused = [](const std::vector<std::pair<PacketHead, size_t>>& packets) {
    EXPECT_THAT(told_of_packets(packets), ::testing::AllOf(::testing::HasSubstr("rank 1 (process "),
                                                           ::testing::HasSubstr("not a message")));
  };
  expect_refused({{{2, 5, 1, 10, 0}, 10}});  // content of no letter
  expect_refused({{{1, 5, 1, 10, 0}, 0}});   // a letter without its content
  expect_refused({{{1, 5, 1, 10, 0}, 20}});  // or with more than that
  expect_refused({{{1, 5, 1, 5000, 0}, 4096}, {{2, 5, 1, 5000, 0}, 4000}});
  expect_refused({{{1, 5, 1, 5000, 0}, 4096}, {{1, 5, 2, 10, 0}, 10}});  // another one within it
  expect_refused({{{4, 5, 1, 10, 0}, 10}});
  expect_refused({{{1, 5, 1, 10000, 0}, 5000}});  // longer than any packet
  expect_refused({{{0, 5, 1, 10, 0}, 3}});
}

TEST(SharedMessages, AreRefusedOutsideThePeersMemory) {
  for (const uint64_t offset : {~uint64_t{0}, ~uint64_t{0} - 4, ~uint64_t{0} - 9, uint64_t{1} << 62}) {
    EXPECT_THAT(told_of_packets({{{0, 5, 1, 10, offset}, 0}}),
                ::testing::AllOf(::testing::HasSubstr("rank 1 (process "),
                                 ::testing::HasSubstr("outside its memory")));
  }
}

}  // namespace
}  // namespace deepspeed::comm::shm
