#include "deepspeed/trial/search/sample.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "deepspeed/base/hash.h"
#include "deepspeed/base/integers.h"

namespace deepspeed::trial {
namespace {

/// Draws numbers by splitmix64, whose state is counted up by a constant.
class Draws {
 public:
  explicit Draws(uint64_t state) : state_(state) {}

  uint64_t next() {
    const uint64_t drawn = mix_bits(state_);
    state_ += 0x9e3779b97f4a7c15ULL;
    return drawn;
  }

  /// Returns a number of 0 to `count` - 1. All are equally likely, since draws behind the last whole multiple
  /// of `count` are thrown away.
  uint64_t below(uint64_t count) {
    const uint64_t rest = (0 - count) % count;  // 2^64 modulo count
    uint64_t drawn = next();
    while (drawn < rest) drawn = next();
    return drawn % count;
  }

  /// Returns a number from `minimum` to `maximum`, one of 2^53 evenly spaced ones.
  double between(double minimum, double maximum) {
    const double part = static_cast<double>(next() >> 11) * 0x1p-53;
    return std::min(minimum + part * (maximum - minimum), maximum);
  }

 private:
  uint64_t state_;
};

/// Draws one value from any domain.
class Sampler {
 public:
  Sampler(uint64_t seed, int64_t trial) : seed_(seed), trial_(trial) {}

  Json values_of(const Space& space, const std::string& path) const {
    Json values = Json::object();
    for (const Hyperparameter& hyperparameter : space) {
      // A length before the name tells the path a, b from the path a.b.
      const std::string own = path + std::to_string(hyperparameter.name.size()) + ":" + hyperparameter.name;
      values[hyperparameter.name] =
          std::visit([&](const auto& domain) { return value_of(domain, own); }, hyperparameter.domain);
    }
    return values;
  }

 private:
  Draws draws(const std::string& path) const {
    Hash hash;
    hash.add(seed_);
    hash.add(static_cast<uint64_t>(trial_));
    hash.add(path);
    return Draws(hash.value());
  }

  Json value_of(const Constant& constant, const std::string&) const { return constant.value; }
  Json value_of(const IntRange& range, const std::string& path) const {
    const auto count = static_cast<uint64_t>(range.maximum - range.minimum) + 1;
    return range.minimum + static_cast<int64_t>(draws(path).below(count));
  }
  Json value_of(const DoubleRange& range, const std::string& path) const {
    return draws(path).between(range.minimum, range.maximum);
  }
  Json value_of(const LogRange& range, const std::string& path) const {
    return std::pow(range.base, draws(path).between(range.minimum, range.maximum));
  }
  Json value_of(const Choice& choice, const std::string& path) const {
    return choice.values.at(draws(path).below(choice.values.size()));
  }
  Json value_of(const Space& space, const std::string& path) const { return values_of(space, path); }

  uint64_t seed_;
  int64_t trial_;
};

}  // namespace

Json sample_hyperparameters(const Space& space, uint64_t seed, int64_t trial) {
  return Sampler(seed, trial).values_of(space, "");
}

}  // namespace deepspeed::trial
