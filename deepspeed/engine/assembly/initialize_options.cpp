#include "deepspeed/engine/assembly/initialize_options.h"

#include "deepspeed/base/error.h"

namespace deepspeed {

OptimizerSource::Pointer OptimizerSource::get(const std::vector<at::Tensor>& parameters) const {
  if (!make_) return ready_;
  Pointer made = make_(parameters);
  if (!made) raise<UsageError>("optimizer: the callable returned no optimizer");
  return made;
}

}  // namespace deepspeed
