#include "deepspeed/activation/keep/configuration.h"

#include <mutex>
#include <utility>

namespace deepspeed::activation {
namespace {

struct CurrentConfiguration {
  std::mutex mutex;
  std::shared_ptr<const Configuration> value = std::make_shared<Configuration>();
};

CurrentConfiguration& current() {
  static auto& instance = *new CurrentConfiguration;
  return instance;
}

}  // namespace

std::shared_ptr<const Configuration> current_configuration() {
  const std::lock_guard lock(current().mutex);
  return current().value;
}

void set_configuration(Configuration configuration) {
  auto next = std::make_shared<Configuration>(std::move(configuration));
  const std::lock_guard lock(current().mutex);
  current().value = std::move(next);
}

}  // namespace deepspeed::activation
