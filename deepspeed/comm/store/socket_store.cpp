// Each call sends one message and reads its answer, under a lock. If the connection breaks, later calls throw
// the reason.
#include "deepspeed/comm/store/socket_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>

#include <poll.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/store/store_guard.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;

// Time for the store's reply beyond the wait of the call itself, for busy machines.
constexpr milliseconds kLeastPatience(30000);
// Longest pause of a client between attempts to connect.
constexpr milliseconds kLongestPause(200);

// Throws an exception of c10d's stores without a stack trace, which would slow down waits with a limit.
template <class E, class... Parts>
[[noreturn]] void throw_c10d(const Parts&... parts) {
  throw E(message(parts...));
}

std::string to_text(const std::vector<uint8_t>& value) { return {value.begin(), value.end()}; }
std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string comma_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const auto& text : texts) list += (list.empty() ? "" : ", ") + text;
  return list;
}

// Sends the bytes. Returns "", or why it failed.
std::string send_bytes(int socket, const std::string& bytes, Deadline deadline) {
  for (size_t sent = 0; sent < bytes.size();) {
    const auto count = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      if (!wait_for_socket(socket, POLLOUT, deadline)) return "it does not take what is sent";
    } else if (errno != EINTR) {
      return std::strerror(errno);
    }
  }
  return "";
}

// Receives a message. Returns "", or why it failed.
std::string receive_message(int socket, std::string& received, Deadline deadline, StoreMessage& message) {
  std::array<char, 1 << 14> buffer;
  while (true) {
    if (auto whole = take_store_message(received)) {
      message = std::move(*whole);
      return "";
    }
    const auto count = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (count > 0) {
      received.append(buffer.data(), static_cast<size_t>(count));
    } else if (count == 0) {
      return "it closed the connection";
    } else if (errno == EAGAIN) {
      if (!wait_for_socket(socket, POLLIN, deadline)) return "it does not answer";
    } else if (errno != EINTR) {
      return std::strerror(errno);
    }
  }
}

Deadline deadline_in(milliseconds time) {
  if (time == milliseconds::zero()) return std::nullopt;
  // Months would overflow the sum.
  return std::chrono::steady_clock::now() + std::min<milliseconds>(time, std::chrono::hours(24 * 365));
}

}  // namespace

namespace {

enum class Greeting {
  kWelcome,
  kUnread,   // the connection ended before an answer
  kRefused,  // also if the other end is not a store, or does not know the secret
};

Greeting greet(int socket, int rank, int world_size, Deadline deadline, std::string& why_not) {
  StoreMessage reply;
  std::string received;
  bool is_answered = false;
  const auto join = [&](const std::string& text) {
    StoreMessage request{static_cast<uint8_t>(StoreCall::kJoin), rank, world_size, {kStoreGreeting}};
    if (!text.empty()) request.texts.push_back(text);
    try {
      why_not = send_bytes(socket, encode_store_message(request), deadline);
      if (why_not.empty()) why_not = receive_message(socket, received, deadline, reply);
      is_answered = is_answered || why_not.empty();
    } catch (const CommError&) {
      why_not = "what answers there is no store of a job";
      is_answered = true;
    }
    if (why_not.empty() && reply.answer() == StoreAnswer::kRefused)
      why_not = reply.texts.empty() ? "it refuses" : reply.texts.front();
    return why_not.empty();
  };
  const std::string secret = store_secret(socket);
  const std::string number = secret.empty() ? "" : guard_number();
  if (!join(number)) return is_answered ? Greeting::kRefused : Greeting::kUnread;
  if (!secret.empty()) {
    const bool knows =
        reply.answer() == StoreAnswer::kProve && reply.texts.size() == 2 &&
        equal_in_constant_time(reply.texts[1], guard_proof(secret, "server", number, reply.texts[0]));
    if (!knows) {
      why_not = message("what answers there does not know the job's secret (", kStoreSecretVariable, ")");
      return Greeting::kRefused;
    }
    is_answered = false;  // the server is the job's: if it closes now, a retry may succeed
    if (!join(guard_proof(secret, "client", number, reply.texts[0])))
      return is_answered ? Greeting::kRefused : Greeting::kUnread;
  }
  if (reply.answer() == StoreAnswer::kDone) return Greeting::kWelcome;
  why_not = "it refuses";
  return Greeting::kRefused;
}

}  // namespace

bool greet_store(int socket, int rank, int world_size, Deadline deadline, std::string& why_not) {
  return greet(socket, rank, world_size, deadline, why_not) == Greeting::kWelcome;
}

Descriptor reach_store(const StoreAddress& address, int rank, int world_size, Deadline deadline,
                       std::string& why_not) {
  for (milliseconds pause(1);; pause = std::min(pause * 2, kLongestPause)) {
    Descriptor socket = connect_to(address, deadline, why_not);
    const bool is_full = !socket && errno == EAGAIN;
    const Greeting answer =
        socket ? greet(socket.get(), rank, world_size, deadline, why_not) : Greeting::kRefused;
    if (answer == Greeting::kWelcome) return socket;
    const bool is_late = deadline && std::chrono::steady_clock::now() + pause >= *deadline;
    if (is_late || (!is_full && answer != Greeting::kUnread)) return {};
    std::this_thread::sleep_for(pause);
  }
}

SocketStore::SocketStore(StoreAddress address, Descriptor socket, milliseconds timeout,
                         std::shared_ptr<StoreServer> server)
    : Store(timeout),
      address_(address),
      server_(std::move(server)),
      process_(::getpid()),
      socket_(std::move(socket)) {}

// Child processes may still hold the socket. A child that has a copy of this object must not shut it down.
SocketStore::~SocketStore() {
  if (process_ == ::getpid()) ::shutdown(socket_.get(), SHUT_RDWR);
}

c10::intrusive_ptr<c10d::Store> SocketStore::clone() {
  std::string why_not;
  const Deadline deadline = deadline_in(timeout_);
  Descriptor socket = reach_store(address_, -1, 0, deadline, why_not);
  if (!socket) throw_c10d<c10::DistNetworkError>("the store of the job cannot be reached again: ", why_not);
  return c10::make_intrusive<SocketStore>(address_, std::move(socket), timeout_);
}

StoreMessage SocketStore::exchange(const StoreMessage& request, Deadline deadline) {
  const std::string bytes = encode_store_message(request);
  const std::lock_guard lock(mutex_);
  StoreMessage reply;
  if (lost_.empty()) lost_ = send_bytes(socket_.get(), bytes, deadline);
  try {
    if (lost_.empty()) lost_ = receive_message(socket_.get(), received_, deadline, reply);
  } catch (const CommError& error) {
    lost_ = error.what();
  }
  if (!lost_.empty())
    throw_c10d<c10::DistNetworkError>("the connection to the store of the job, which rank 0 holds, is lost: ",
                                      lost_);
  return reply;
}

StoreMessage SocketStore::call(StoreCall call, std::vector<std::string> texts, int64_t number,
                               std::optional<milliseconds> limit) {
  const StoreMessage request{static_cast<uint8_t>(call), number, limit ? limit->count() : 0,
                             std::move(texts)};
  const bool is_endless = limit.value_or(timeout_) == kNoTimeout;
  const auto patience = std::max(limit.value_or(kNoTimeout), kNoTimeout) + std::max(timeout_, kLeastPatience);
  const auto reply = exchange(request, is_endless ? Deadline() : deadline_in(patience));
  switch (reply.answer()) {
    case StoreAnswer::kDone:
      return reply;
    case StoreAnswer::kTimeout:
      throw_c10d<c10::DistStoreError>("wait timeout after ", request.limit_ms,
                                      "ms, keys: ", comma_list(request.texts));
    case StoreAnswer::kEmpty:
      throw_c10d<c10::DistQueueEmptyError>("the queue '", comma_list(request.texts), "' is empty");
    case StoreAnswer::kRefused:
    case StoreAnswer::kProve:  // only answers greetings
      break;
  }
  throw_c10d<c10::DistStoreError>("the store refused a call: ", comma_list(reply.texts));
}

void SocketStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  call(StoreCall::kSet, {key, to_text(value)});
}

std::vector<uint8_t> SocketStore::compareSet(const std::string& key, const std::vector<uint8_t>& current,
                                             const std::vector<uint8_t>& next) {
  return to_bytes(call(StoreCall::kCompareSet, {key, to_text(current), to_text(next)}).texts.at(0));
}

std::vector<uint8_t> SocketStore::get(const std::string& key) {
  return to_bytes(call(StoreCall::kGet, {key}, 0, timeout_).texts.at(0));
}

int64_t SocketStore::add(const std::string& key, int64_t value) {
  return call(StoreCall::kAdd, {key}, value).number;
}

bool SocketStore::deleteKey(const std::string& key) { return call(StoreCall::kDelete, {key}).number != 0; }

bool SocketStore::check(const std::vector<std::string>& keys) {
  return call(StoreCall::kCheck, keys).number != 0;
}

int64_t SocketStore::getNumKeys() { return call(StoreCall::kCount, {}).number; }

void SocketStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void SocketStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  call(StoreCall::kWait, keys, 0, timeout);
}

void SocketStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  call(StoreCall::kAppend, {key, to_text(value)});
}

std::vector<std::vector<uint8_t>> SocketStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values;
  for (const auto& text : call(StoreCall::kMultiGet, keys, 0, timeout_).texts)
    values.push_back(to_bytes(text));
  return values;
}

void SocketStore::multiSet(const std::vector<std::string>& keys,
                           const std::vector<std::vector<uint8_t>>& values) {
  if (keys.size() != values.size())
    throw_c10d<c10::DistStoreError>("multiSet: got ", keys.size(), " keys and ", values.size(), " values");
  std::vector<std::string> texts;
  for (size_t i = 0; i < keys.size(); ++i) {
    texts.push_back(keys[i]);
    texts.push_back(to_text(values[i]));
  }
  call(StoreCall::kMultiSet, std::move(texts));
}

void SocketStore::queuePush(const std::string& key, const std::vector<uint8_t>& value) {
  call(StoreCall::kPush, {key, to_text(value)});
}

std::vector<uint8_t> SocketStore::queuePop(const std::string& key, bool block) {
  return to_bytes(call(StoreCall::kPop, {key}, 0, block ? timeout_ : milliseconds(-1)).texts.at(0));
}

int64_t SocketStore::queueLen(const std::string& key) { return call(StoreCall::kLength, {key}).number; }

std::vector<std::string> SocketStore::listKeys() { return call(StoreCall::kList, {}).texts; }

}  // namespace deepspeed::comm
