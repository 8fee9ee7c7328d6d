// Runs collectives of c10d, and handles their failures.
//
// run() refuses a group that has failed. It records the call in the group's history and starts the operation
// with a tag that contains the hash of all calls so far. wait() tells the guard that the program is blocked,
// waits for c10d, and does this rank's remaining work. After a failure, wait() asks the guard how the ranks'
// calls differ, or else blame() which rank did not report. The connections are aborted, so that other ranks
// see the failure too, and all later calls throw the text of the failure. end() also aborts the connections;
// the guard calls it with a reason, which later calls throw.
//
// For an NCCL operation, wait() only blocks the current stream. A failure may therefore come later; check()
// finds it. Before a group ends, it waits for the device in complete(), because NCCL's abort stops kernels
// midway. Work that still remains is aborted, and a thread is left to wait in c10d.
#include "deepspeed/comm/backends/c10d_group.h"

#include <algorithm>
#include <exception>
#include <iomanip>
#include <thread>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/system/clock.h"
#include "deepspeed/base/text.h"
#include "deepspeed/comm/shm/lost_rank.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/comm/watch/failure.h"
#include "deepspeed/comm/watch/monitored_barrier.h"
#include "deepspeed/comm/watch/own_thread.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;

// How long ranks that have not failed yet have to report before they are named as dead or hanging.
constexpr milliseconds kGrace(2000);
// How long this rank publishes its calls and reads the others' after a collective failed.
constexpr milliseconds kTelling(500);
// How long a group that ends waits for the device at most, and the interval between checks.
constexpr milliseconds kCompleting(60000);
constexpr milliseconds kLooking(1);

std::string in_seconds(milliseconds time) {
  std::ostringstream out;
  out << std::setprecision(3) << static_cast<double>(time.count()) / 1000.0 << " s";
  return out.str();
}

// Names a collective in errors, with its subject if there is one.
std::string shown(const char* collective, const std::string& subject) {
  return subject.empty() ? collective : message(collective, " (", subject, ")");
}

class C10dWork : public WorkImpl {
 public:
  /// `subject` is what the call is about; "": unknown. `number` is that of the call in the group's history; 0
  /// for a message between two ranks.
  C10dWork(const char* collective, std::string subject, uint64_t number, Started started,
           std::shared_ptr<C10dGroup> group, std::optional<int> peer = {})
      : collective_(collective),
        subject_(std::move(subject)),
        number_(number),
        started_(std::move(started)),
        group_(std::move(group)),
        peer_(peer) {}

  ~C10dWork() override {
    if (!done_ && started_.on_stream) group_->device_work().keep(started_.works);
  }

  void wait() override {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    const auto begin = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration_cast<milliseconds>(Clock::now() - begin); };
    const auto timeout = group_->description().timeout;
    std::optional<CallHistory::MessageWait> message_wait;
    if (peer_) message_wait.emplace(group_->calls(), collective_, *peer_);
    if (!peer_ && !OwnThread::is_here()) group_->calls().set_blocked(number_, true);
    try {
      for (const auto& work : started_.works) {
        // With a timeout, NCCL's wait would block this thread too. For Gloo, zero would mean no limit.
        work->wait(started_.on_stream ? kNoTimeout : std::max(timeout - elapsed(), milliseconds(1)));
        // NCCL reports an aborted communicator here, not in wait().
        if (const auto error = work->exception()) std::rethrow_exception(error);
      }
    } catch (const shm::LostRank& error) {
      group_->fail(shown(collective_, subject_), elapsed(), error.what(), peer_, error.rank());
    } catch (const std::exception& error) {
      group_->fail(shown(collective_, subject_), elapsed(), first_line(error.what()), peer_);
    }
    if (!peer_) group_->calls().set_blocked(number_, false);
    if (started_.finish) started_.finish();
    if (started_.on_stream) group_->device_work().note(group_->description().device);
    started_ = {};
    done_ = true;
  }

  bool is_completed() const override {
    const std::lock_guard lock(mutex_);
    for (const auto& work : started_.works) {
      if (!work->isCompleted()) return false;
    }
    return true;
  }

 private:
  const char* collective_;
  std::string subject_;
  uint64_t number_;
  mutable std::mutex mutex_;
  bool done_ = false;
  Started started_;
  std::shared_ptr<C10dGroup> group_;  // keeps the connections of the operation open
  const std::optional<int> peer_;     // in the group, for a message
};

}  // namespace

C10dGroup::C10dGroup(const Backend& backend, GroupDescription description, const std::string& key,
                     c10::intrusive_ptr<c10d::ProcessGroup> group, c10::intrusive_ptr<c10d::Store> store,
                     std::shared_ptr<DivergenceGuard> guard, std::unique_ptr<NodeLevels> levels)
    : ObservedGroup(std::move(description)),
      key_(key),
      connection_(backend, std::move(group), this->description().timeout),
      levels_(std::move(levels)),
      store_(std::move(store)),
      guard_(std::move(guard)) {}

std::shared_ptr<C10dGroup> C10dGroup::make(const Backend& backend, GroupDescription description,
                                           const std::string& key,
                                           c10::intrusive_ptr<c10d::ProcessGroup> group,
                                           c10::intrusive_ptr<c10d::Store> store,
                                           std::shared_ptr<DivergenceGuard> guard,
                                           std::unique_ptr<NodeLevels> levels) {
  const std::shared_ptr<C10dGroup> made(new C10dGroup(backend, std::move(description), key, std::move(group),
                                                      std::move(store), std::move(guard), std::move(levels)));
  const auto check =
      backend.meets_by_tags ? DivergenceGuard::Check::kByMessages : DivergenceGuard::Check::kByTheGuard;
  made->calls_ = made->guard_->watch(
      key, made->description().name, made->description().global_ranks, check,
      [weak = std::weak_ptr(made)](const std::string& reason) {
        if (const auto group = weak.lock()) group->end(reason);
      },
      [weak = std::weak_ptr(made)] {
        if (const auto group = weak.lock()) group->complete();
      });
  return made;
}

std::shared_ptr<GroupImpl> C10dGroup::closing_together(std::shared_ptr<C10dGroup> group) {
  GroupImpl* const handle = group.get();
  return {handle, [group = std::move(group)](GroupImpl*) mutable {
            group->complete();  // first, so that all devices have finished once all ranks have released it
            const auto guard = group->guard_;
            const std::string key = group->key_;
            guard->let_go(key, std::move(group));
          }};
}

C10dGroup::~C10dGroup() {
  complete();
  has_failed() ? abort() : close();
  // c10d's destructor waits for operations that started before or during the abort, up to their timeout. They
  // own all they need, so a separate thread waits for them.
  if (!has_unfinished_operations()) return;
  std::thread([group = connection_.release(), levels = std::move(levels_)]() mutable {
    group.reset();
    levels.reset();
  }).detach();
}

void C10dGroup::remember_message(const c10::intrusive_ptr<c10d::Work>& message) {
  const std::lock_guard lock(messages_mutex_);
  std::erase_if(messages_, [](const auto& weak) {
    const auto work = weak.lock();
    return !work || work->isCompleted();
  });
  if (message) messages_.emplace_back(message);
}

bool C10dGroup::has_unfinished_operations() {
  remember_message(nullptr);
  return !messages_.empty() || calls_->has_unfinished_calls();
}

bool C10dGroup::has_failed() {
  const std::lock_guard lock(failure_mutex_);
  return !failure_.empty();
}

void C10dGroup::complete() {
  if (is_late_ || std::uncaught_exceptions() > 0)
    return;  // other ranks may never start their parts of the operations
  const auto limit = std::min(description().timeout, kCompleting);
  const auto end = Clock::now() + limit;
  while (!has_failed() && !device_work_.is_done()) {
    if (Clock::now() >= end) {
      log::warning("[comm] group '", description().name, "' ends on rank ", description().rank, " of ",
                   description().size(), " with operations that its device has not done for ",
                   in_seconds(limit), "; they are aborted");
      is_late_ = true;
      return;
    }
    std::this_thread::sleep_for(kLooking);
  }
  is_complete_ = !has_failed();
}

void C10dGroup::check() {
  refuse_after_failure("check");
  if (const std::string failure = connection_.failure_of_device(); !failure.empty())
    fail("an operation", milliseconds(0), failure);
}

void C10dGroup::refuse_after_failure(const char* collective) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_.empty()) return;
  raise<CommError>(collective, " of group '", description().name,
                   "' cannot run, the group has failed: ", failure_);
}

Work C10dGroup::run(const Operation& operation, const Caller& caller) {
  guard_->end_groups_if_due();
  refuse_after_failure(name_of(operation));
  if (const auto* barrier = std::get_if<operations::MonitoredBarrier>(&operation)) {
    wait_at(*barrier);
    return Work(std::make_shared<FinishedWork>());
  }
  const bool is_message = std::holds_alternative<operations::Send>(operation) ||
                          std::holds_alternative<operations::Recv>(operation);
  return is_message ? start_message(operation) : start_collective(operation, caller);
}

Started C10dGroup::start_by_route(const Operation& operation, at::DeviceType device,
                                  CallHistory::Progress call) {
  if (device == at::kCPU && goes_by_nodes(operation)) return levels_->start(operation, call);
  return connection_.start(operation, device, call);
}

bool C10dGroup::goes_by_nodes(const Operation& operation) const {
  const at::Tensor whole = levels_ ? whole_tensor_of(operation) : at::Tensor();
  return whole.defined() && whole.is_cpu() && levels_->suits(operation);
}

Work C10dGroup::start_collective(const Operation& operation, const Caller& caller) {
  CollectiveCall call = call_of(operation);
  call.position = caller.position;
  call.held = caller.held;
  call.subject = CallSubject::current();
  const at::Tensor whole = whole_tensor_of(operation);
  const auto device = whole.defined() ? whole.device().type() : at::kCPU;
  const auto [number, chain] = calls_->begin(call);
  try {
    auto started = start_by_route(operation, device, {number, chain});
    started.on_stream = device != at::kCPU;
    calls_->started(number, started.works);
    return Work(std::make_shared<C10dWork>(call.collective, std::move(call.subject), number,
                                           std::move(started), shared_from_this()));
  } catch (const std::exception& error) {
    fail(shown(call.collective, call.subject), milliseconds(0), first_line(error.what()));
  }
}

Work C10dGroup::start_message(const Operation& operation) {
  const char* const name = name_of(operation);
  const at::Tensor tensor = whole_tensor_of(operation);
  const auto* const send = std::get_if<operations::Send>(&operation);
  const int peer = send != nullptr ? send->destination : std::get<operations::Recv>(operation).source;
  try {
    auto started = start_by_route(operation, tensor.device().type(), {});
    started.on_stream = !tensor.is_cpu();
    remember_message(started.works.front());
    return Work(
        std::make_shared<C10dWork>(name, std::string(), 0, std::move(started), shared_from_this(), peer));
  } catch (const std::exception& error) {
    fail(name, milliseconds(0), first_line(error.what()), peer);
  }
}

void C10dGroup::close() {
  if (!device_work_.is_done() || has_unfinished_operations()) return abort();
  is_closed_ = true;
  connection_.shutdown();
  if (levels_) levels_->abort();
}

void C10dGroup::abort() {
  if (is_closed_) return;  // NCCL's communicators are gone
  connection_.abort();
  if (levels_) levels_->abort();
}

void C10dGroup::give_up(const std::string& reason) { guard_->end_group(key_, reason); }

void C10dGroup::end(const std::string& reason) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_.empty()) return;
    failure_ = message("[comm] group '", description().name, "' failed on rank ", description().rank, " of ",
                       description().size(), ": ", reason);
  }
  is_complete_ ? close() : abort();  // waiting callers get an error, and find the reason in fail()
}

void C10dGroup::fail(const std::string& collective, milliseconds elapsed, const std::string& reason,
                     std::optional<int> peer, std::optional<int> lost) {
  const auto divergence = guard_->explain(key_, kTelling);  // without the lock, which end() may need
  const std::lock_guard lock(failure_mutex_);
  if (failure_.empty()) {
    std::string culprits;
    if (lost) {
      culprits = message("no sign of life from rank ", *lost);
      // Ranks that wait in another step (node_levels.h) do not notice the death. They look in the store for
      // ranks that reported a failure, so this rank reports too.
      if (levels_) {
        blame(
            description(), store_, [this] { abort(); }, kTelling);
      } else {
        abort();
      }
    } else {
      culprits = blame(
          description(), store_, [this] { abort(); }, kGrace, peer);
    }
    failure_ = message("[comm] ", collective, " of group '", description().name, "' failed on rank ",
                       description().rank, " of ", description().size(), " after ", in_seconds(elapsed), ": ",
                       divergence.value_or(culprits), " (", reason, ")");
  }
  throw CommError(failure_);
}

void C10dGroup::wait_at(const operations::MonitoredBarrier& barrier) {
  try {
    const std::lock_guard lock(monitored_barriers_mutex_);
    monitored_barriers_.wait(description(), *store_, calls_->progress().number, barrier.timeout,
                             barrier.wait_all_ranks);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    raise<CommError>("monitored_barrier of group '", description().name,
                     "': the store of rank 0 does not answer (", first_line(error.what()), ")");
  }
}

}  // namespace deepspeed::comm
