#include "deepspeed/trial/experiment/searcher_config.h"

namespace deepspeed::trial {

int64_t usable_rungs(int64_t max_rungs, int64_t divisor, int64_t max_trials) {
  int64_t rungs = 1;
  for (int64_t trials = max_trials; rungs < max_rungs && trials >= divisor; ++rungs) trials /= divisor;
  return rungs;
}

int64_t whole_power(int64_t divisor, int64_t exponent) {
  int64_t power = 1;
  for (; exponent > 0; --exponent) power *= divisor;
  return power;
}

Json json_of(const SearcherConfig& searcher) {
  Json json = {{"method", searcher.method},
               {"metric", searcher.metric},
               {"smaller_is_better", searcher.smaller_is_better},
               {"max_length", text_of(searcher.max_length)},
               {"max_trials", searcher.max_trials},
               {"max_concurrent_trials", searcher.max_concurrent_trials}};
  if (searcher.method == SearchMethod::kAdaptiveAsha) {
    json["mode"] = searcher.mode;
    json["divisor"] = searcher.divisor;
    json["rungs"] = searcher.rungs;
    json["stop_once"] = searcher.stop_once;
  }
  return json;
}

}  // namespace deepspeed::trial
