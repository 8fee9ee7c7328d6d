// Implements the server of a job's store.
//
// One thread waits for all sockets. It reads a socket when it is readable and answers the messages in order,
// each after the previous reply was written. A client that does not read its replies is therefore not read
// either. A call that waits for a key is kept with its client. When the key changes, the call is answered
// again; its deadline ends it. While a client waits, its socket is only watched for its end.
//
// A client that has not sent its greeting may not belong to the job. It has ten seconds. When too many wait,
// the oldest is dropped, unless its greeting is waiting to be read. A rank dropped this way reconnects.
#include "deepspeed/comm/store/store_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <future>
#include <new>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/store/store_guard.h"
#include "deepspeed/comm/store/store_message.h"
#include "deepspeed/comm/store/store_table.h"

namespace deepspeed::comm {
namespace {

using ServerClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kMaxGreetingBytes = 256;
constexpr int kAcceptsATurn = 64;
// Ids in epoll of the sockets that are not clients.
constexpr uint64_t kListenerId = 0, kStopId = 1, kFirstClientId = 2;
// How long no client is accepted after the process ran out of descriptors.
constexpr milliseconds kAcceptPause(100);
// The most and least time that a client has to greet, and how many may be about to.
constexpr milliseconds kGreetingPatience(10000), kLeastTimeToGreet(1000);
constexpr size_t kMaxUngreeted = 512;

}  // namespace

class StoreServer::Loop {
 public:
  Loop(Descriptor listener, int world_size, Descriptor reserved)
      : listener_(std::move(listener)),
        reserved_(std::move(reserved)),
        ranks_(world_size),
        guard_(store_secret(listener_.get())),
        poll_(::epoll_create1(EPOLL_CLOEXEC)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!poll_ || !stop_) raise<CommError>("the store cannot serve: ", std::strerror(errno));
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &length);
    is_local_ = own.ss_family == AF_UNIX;
    ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
    watch(EPOLL_CTL_ADD, listener_.get(), kListenerId, EPOLLIN);
    watch(EPOLL_CTL_ADD, stop_.get(), kStopId, EPOLLIN);
    start();
  }

  ~Loop() {
    if (process_ != ::getpid()) {  // a fork has the object but not the thread
      static_cast<void>(thread_.release());
      return;
    }
    call_thread();
    thread_->join();
    // Child processes may still hold the sockets.
    for (const auto& [id, client] : clients_) ::shutdown(client.socket.get(), SHUT_RDWR);
    if (listener_) ::shutdown(listener_.get(), SHUT_RDWR);
  }

  void stop_listening() {
    if (process_ != ::getpid()) return;
    std::promise<void> stopped;
    stops_listening_ = &stopped;
    call_thread();
    stopped.get_future().wait();
  }

 private:
  struct Client {
    uint64_t id = 0;  // epoll may report an earlier descriptor of the same number
    Descriptor socket;
    std::string received, to_send;
    bool has_greeted = false;
    ServerClock::time_point came;
    StoreGuard::Shown shown;
    int joins = -1;                       // the rank that it has joined as
    std::optional<StoreMessage> pending;  // the call that waits
    std::string awaited;                  // for this key
    std::optional<ServerClock::time_point> deadline;
    uint32_t interest = 0;  // what epoll watches
  };

  // Makes the thread stop listening if that was requested, otherwise end.
  void call_thread() {
    const uint64_t one = 1;
    static_cast<void>(!::write(stop_.get(), &one, sizeof(one)));
  }

  bool is_to_end() {
    uint64_t count = 0;
    static_cast<void>(!::read(stop_.get(), &count, sizeof(count)));
    auto* const stopped = stops_listening_.exchange(nullptr);
    if (stopped == nullptr) return true;
    if (listener_) {
      ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      ::shutdown(listener_.get(), SHUT_RDWR);
    }
    listener_ = Descriptor();
    reserved_ = Descriptor();
    accepts_again_.reset();
    stopped->set_value();
    return false;
  }

  // Signals are left to the program's own threads.
  void start() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::make_unique<std::thread>([this] { run(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void run() {
    std::array<epoll_event, 64> events{};
    while (true) {
      const int count =
          ::epoll_wait(poll_.get(), events.data(), events.size(), poll_time_until(next_deadline()));
      for (int i = 0; i < count; ++i) {
        const uint64_t id = events[i].data.u64;
        if (id == kStopId) {
          if (is_to_end()) return;
          continue;
        }
        try {
          id == kListenerId ? accept_clients() : serve(id, events[i].events);
        } catch (const std::bad_alloc&) {
          drop(id);
        }
        answer_ready();
      }
      end_waits();
      answer_ready();
    }
  }

  bool watch(int operation, int fd, uint64_t id, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    return ::epoll_ctl(poll_.get(), operation, fd, &event) == 0;
  }

  Deadline next_deadline() const {
    Deadline next = accepts_again_;
    if (!deadlines_.empty() && (!next || deadlines_.begin()->first < *next)) next = deadlines_.begin()->first;
    if (!ungreeted_.empty()) {
      const auto last = ungreeted_.begin()->first + kGreetingPatience;
      if (!next || last < *next) next = last;
    }
    return next;
  }

  void accept_clients() {
    if (!listener_) return;
    for (int i = 0; i < kAcceptsATurn; ++i) {
      if (ungreeted_.size() >= kMaxUngreeted && !drop_oldest_ungreeted()) return pause_accepting();
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        if (drop_oldest_ungreeted()) continue;
        return pause_accepting();
      }
      if (!socket) return;
      if (is_local_ && user_of_peer(socket.get()) != ::geteuid()) continue;
      const int fd = socket.get(), on = 1;
      if (!is_local_) {
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
      }
      const uint64_t id = next_id_++;
      auto& client = clients_[id];
      client.id = id;
      client.socket = std::move(socket);
      client.came = ServerClock::now();
      ungreeted_.emplace(client.came, id);
      client.interest = EPOLLIN | EPOLLRDHUP;
      if (!watch(EPOLL_CTL_ADD, fd, id, client.interest)) drop(id);
    }
  }

  void pause_accepting() {
    ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
    accepts_again_ = ServerClock::now() + kAcceptPause;
  }

  // Returns false if even the oldest one has only just connected.
  bool drop_oldest_ungreeted() {
    if (ungreeted_.empty() || ServerClock::now() - ungreeted_.begin()->first < kLeastTimeToGreet)
      return false;
    drop_unless_it_greets(ungreeted_.begin()->second);
    return true;
  }

  // On a busy machine this thread may be late, and the greeting may already have arrived.
  void drop_unless_it_greets(uint64_t id) {
    serve(id, EPOLLIN);
    const auto found = clients_.find(id);
    if (found != clients_.end() && !found->second.has_greeted) drop(id);
  }

  void serve(uint64_t id, uint32_t events) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return;
    Client& client = found->second;
    bool is_over = (events & (EPOLLHUP | EPOLLERR)) != 0;
    if ((events & EPOLLRDHUP) != 0 && (client.interest & EPOLLIN) == 0) is_over = true;
    if ((events & EPOLLIN) != 0 && (client.interest & EPOLLIN) != 0) is_over = !read_some(client);
    if ((events & EPOLLOUT) != 0 && !write_some(client)) is_over = true;
    // Messages that a process sent before it ended are answered.
    if (!answer_messages(id) || is_over) drop(id);
  }

  // Returns false if the client has ended.
  bool read_some(Client& client) {
    std::array<char, 1 << 16> buffer;
    const auto count = ::recv(client.socket.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) client.received.append(buffer.data(), static_cast<size_t>(count));
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
  }

  bool write_some(Client& client) {
    while (!client.to_send.empty()) {
      const auto count =
          ::send(client.socket.get(), client.to_send.data(), client.to_send.size(), MSG_NOSIGNAL);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      client.to_send.erase(0, static_cast<size_t>(count));
    }
    return true;
  }

  // Answers complete messages. Returns false if the client is to be dropped.
  bool answer_messages(uint64_t id) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return true;
    Client& client = found->second;
    try {
      while (!client.pending && client.to_send.empty()) {
        auto request =
            take_store_message(client.received, client.has_greeted ? kMaxStoreMessage : kMaxGreetingBytes);
        if (!request) break;
        if (!client.has_greeted) {
          if (!greet(client, *request)) return false;
        } else {
          answer(client, std::move(*request));
        }
      }
    } catch (const std::exception&) {
      return false;  // a client of ours never sends that
    }
    look_for(client);
    return true;
  }

  void look_for(Client& client) {
    uint32_t interest = EPOLLRDHUP;
    if (!client.to_send.empty()) {
      interest |= EPOLLOUT;
    } else if (!client.pending) {
      interest |= EPOLLIN;
    }
    if (interest == client.interest) return;
    client.interest = interest;
    watch(EPOLL_CTL_MOD, client.socket.get(), client.id, interest);
  }

  bool greet(Client& client, const StoreMessage& request) {
    auto answer = guard_.check(client.shown, request);
    if (!answer && request.number >= 0) {
      const auto refusal = ranks_.why_not(request.number, request.limit_ms);
      if (!refusal.empty()) answer = store_reply(StoreAnswer::kRefused, 0, {refusal});
    }
    if (answer) {
      reply(client, *answer);
      return true;  // it continues, reconnects or leaves
    }
    client.has_greeted = true;
    ungreeted_.erase({client.came, client.id});
    if (request.number >= 0) {
      client.joins = static_cast<int>(request.number);
      ranks_.join(client.joins);
    }
    reply(client, store_reply(StoreAnswer::kDone));
    return true;
  }

  void answer(Client& client, StoreMessage request) {
    auto outcome = table_.answer(request);
    for (const auto& key : outcome.changed) wake(key);
    if (outcome.reply) {
      reply(client, *outcome.reply);
      return;
    }
    if (request.limit_ms != 0) {
      const milliseconds limit(std::clamp<int64_t>(request.limit_ms, 0, INT32_MAX));
      client.deadline = ServerClock::now() + limit;
      deadlines_.emplace(*client.deadline, client.id);
    }
    client.pending = std::move(request);
    client.awaited = outcome.awaited;
    waiting_[client.awaited].insert(client.id);
  }

  // Clients that wait for the key are served after the one that changed it has its reply.
  void wake(const std::string& key) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) return;
    ready_.insert(ready_.end(), found->second.begin(), found->second.end());
  }

  void answer_ready() {
    while (!ready_.empty()) {
      const uint64_t id = ready_.front();
      ready_.pop_front();
      const auto found = clients_.find(id);
      if (found == clients_.end() || !found->second.pending) continue;
      Client& client = found->second;
      auto outcome = table_.answer(*client.pending);
      for (const auto& key : outcome.changed) wake(key);
      if (!outcome.reply && outcome.awaited == client.awaited) continue;
      stop_waiting_for_key(client);
      if (outcome.reply) {
        end_wait(client, *outcome.reply);
      } else {
        client.awaited = outcome.awaited;
        waiting_[client.awaited].insert(id);
      }
    }
  }

  void end_waits() {
    const auto now = ServerClock::now();
    if (accepts_again_ && *accepts_again_ <= now) {
      accepts_again_.reset();
      watch(EPOLL_CTL_ADD, listener_.get(), kListenerId, EPOLLIN);
    }
    while (!ungreeted_.empty() && ungreeted_.begin()->first + kGreetingPatience <= now)
      drop_unless_it_greets(ungreeted_.begin()->second);
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      Client& client = clients_.at(deadlines_.begin()->second);
      stop_waiting_for_key(client);
      end_wait(client, store_reply(StoreAnswer::kTimeout));
    }
  }

  void stop_waiting_for_key(Client& client) {
    const auto found = waiting_.find(client.awaited);
    if (found == waiting_.end()) return;
    found->second.erase(client.id);
    if (found->second.empty()) waiting_.erase(found);
  }

  void forget_deadline(Client& client) {
    if (client.deadline) deadlines_.erase({*client.deadline, client.id});
    client.deadline.reset();
  }

  void end_wait(Client& client, const StoreMessage& answer) {
    forget_deadline(client);
    client.pending.reset();
    const uint64_t id = client.id;
    reply(client, answer);
    if (!answer_messages(id)) drop(id);
  }

  void reply(Client& client, const StoreMessage& answer) {
    try {
      client.to_send += encode_store_message(answer);
    } catch (const CommError& error) {
      client.to_send += encode_store_message(store_reply(StoreAnswer::kRefused, 0, {error.what()}));
    }
    write_some(client);  // a failure shows as the end of the socket
  }

  void drop(uint64_t id) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return;
    Client& client = found->second;
    if (client.pending) stop_waiting_for_key(client);
    forget_deadline(client);
    ungreeted_.erase({client.came, client.id});
    if (client.joins >= 0) ranks_.leave(client.joins);
    // A child process may still hold the socket, which neither epoll nor the client should notice.
    ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, client.socket.get(), nullptr);
    ::shutdown(client.socket.get(), SHUT_RDWR);
    clients_.erase(found);
  }

  Descriptor listener_, reserved_;
  JoinedRanks ranks_;
  const StoreGuard guard_;
  bool is_local_ = false;
  Descriptor poll_, stop_;
  std::atomic<std::promise<void>*> stops_listening_ = nullptr;
  const pid_t process_ = ::getpid();
  StoreTable table_;
  uint64_t next_id_ = kFirstClientId;
  std::unordered_map<uint64_t, Client> clients_;
  std::unordered_map<std::string, std::set<uint64_t>> waiting_;       // clients that wait for a key
  std::set<std::pair<ServerClock::time_point, uint64_t>> deadlines_;  // of waiting clients
  std::set<std::pair<ServerClock::time_point, uint64_t>> ungreeted_;  // by time of connection
  std::deque<uint64_t> ready_;                                        // clients whose key has changed
  Deadline accepts_again_;
  std::unique_ptr<std::thread> thread_;
};

StoreServer::StoreServer(Descriptor listener, int world_size, Descriptor reserved)
    : loop_(std::make_unique<Loop>(std::move(listener), world_size, std::move(reserved))) {}

StoreServer::~StoreServer() = default;

void StoreServer::stop_listening() { loop_->stop_listening(); }

}  // namespace deepspeed::comm
