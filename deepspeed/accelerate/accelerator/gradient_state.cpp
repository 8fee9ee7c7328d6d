#include "deepspeed/accelerate/accelerator/gradient_state.h"

namespace deepspeed::accelerate {

void GradientState::next_micro_batch() {
  if (plugin_.sync_with_dataloader && end_of_dataloader()) {
    step_ = 0;
    sync_gradients_ = true;
    return;
  }
  ++step_;
  sync_gradients_ = step_ % plugin_.num_steps == 0;
}

void GradientState::begin(const std::shared_ptr<LoaderProgress>& loader) {
  end(loader);
  loaders_.push_back(loader);
}

void GradientState::end(const std::shared_ptr<LoaderProgress>& loader) { std::erase(loaders_, loader); }

}  // namespace deepspeed::accelerate
