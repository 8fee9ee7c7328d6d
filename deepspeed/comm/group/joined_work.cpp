#include "deepspeed/comm/group/joined_work.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <c10/core/GradMode.h>

#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {
namespace {

class JoinedWork : public WorkImpl {
 public:
  JoinedWork(std::vector<Work> works, std::function<void()> finish)
      : works_(std::move(works)), finish_(std::move(finish)) {}

  void wait() override {
    const std::lock_guard lock(mutex_);
    for (auto& work : works_) work.wait();
    works_.clear();
    const c10::NoGradGuard no_grad;
    if (finish_) std::exchange(finish_, nullptr)();
  }

  bool is_completed() const override {
    const std::lock_guard lock(mutex_);
    return std::all_of(works_.begin(), works_.end(), [](const Work& work) { return work.is_completed(); });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Work> works_;
  std::function<void()> finish_;
};

}  // namespace

Work joined_work(std::vector<Work> works, std::function<void()> finish) {
  return Work(std::make_shared<JoinedWork>(std::move(works), std::move(finish)));
}

}  // namespace deepspeed::comm
