#include "deepspeed/comm/group/quiet_backend.h"

#include <algorithm>
#include <mutex>

#include <c10/util/Logging.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/log.h"

namespace deepspeed::comm {
namespace {

constexpr int kFatalAlone = 3;  // one of c10's levels, which start with 0 for information

// c10's level is global, so nested scopes share one change of it.
struct BackendLevel {
  std::mutex mutex;
  int scopes = 0;
  int before = 0;
};

BackendLevel& backend_level() {
  static auto& instance = *new BackendLevel;  // threads may outlive other statics
  return instance;
}

bool is_to_be_heard() {
  return log::level() <= log::Level::kDebug || env::get("TORCH_CPP_LOG_LEVEL").has_value();
}

}  // namespace

QuietBackend::QuietBackend() {
  BackendLevel& level = backend_level();
  const std::lock_guard lock(level.mutex);
  if (level.scopes++ > 0) return;
  level.before = FLAGS_caffe2_log_level;
  if (!is_to_be_heard()) FLAGS_caffe2_log_level = std::max(level.before, kFatalAlone);
}

QuietBackend::~QuietBackend() {
  BackendLevel& level = backend_level();
  const std::lock_guard lock(level.mutex);
  if (--level.scopes == 0) FLAGS_caffe2_log_level = level.before;
}

}  // namespace deepspeed::comm
