// Calls of DeepSpeed's engine whose features do not exist yet: each throws NotSupportedError that says what
// it waits for.
#pragma once

namespace deepspeed {

[[noreturn]] void refuse_later_call(const char* call, const char* feature, const char* way_out);

class LaterCalls {
 public:
  template <class... Args>
  void set_data_post_process_func(Args&&...) {
    refuse_later_call("set_data_post_process_func", "the data_efficiency section",
                      "pass deepspeed_io() a collate function");
  }
  template <class... Args>
  void set_custom_curriculum_learning_schedule(Args&&...) {
    refuse_later_call("set_custom_curriculum_learning_schedule", "the data_efficiency section",
                      "pass deepspeed_io() a data_sampler");
  }
  template <class... Args>
  void random_ltd_initialize(Args&&...) {
    refuse_later_call("random_ltd_initialize", "the data_efficiency section", "train with all tokens");
  }

 protected:
  ~LaterCalls() = default;
};

}  // namespace deepspeed
