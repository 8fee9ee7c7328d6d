#include "deepspeed/engine/data/sampler.h"

#include <numeric>
#include <random>
#include <utility>

#include "deepspeed/base/error.h"

namespace deepspeed {
namespace {

// Unlike std::uniform_int_distribution this gives equal results with every standard library. The bias of the
// multiplication is below 2^-32 for any data set that fits a machine.
uint64_t below(std::mt19937_64& engine, uint64_t limit) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(engine()) * limit) >> 64);
}

}  // namespace

std::vector<int64_t> epoch_order(const SamplerOptions& options, int64_t epoch) {
  if (options.dataset_size < 1) {
    raise<UsageError>("dataset_size is ", options.dataset_size,
                      ", expected at least 1; give the data set samples, or its size() their number");
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    raise<UsageError>("rank is ", options.rank, ", expected 0 to ", options.world_size - 1,
                      ", below the world_size");
  }
  std::vector<int64_t> order(static_cast<size_t>(options.dataset_size));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (options.shuffle) {
    std::seed_seq sequence{static_cast<uint32_t>(options.seed), static_cast<uint32_t>(options.seed >> 32),
                           static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)};
    std::mt19937_64 engine(sequence);
    for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[below(engine, left)]);
  }
  const int64_t world = options.world_size;
  const int64_t whole = options.dataset_size / world * world;
  if (options.drop_last && whole > 0) {
    order.resize(static_cast<size_t>(whole));
  } else {
    for (size_t next = 0; order.size() % static_cast<size_t>(world) != 0; ++next)
      order.push_back(order[next]);
  }
  return order;
}

std::vector<int64_t> rank_indices(const SamplerOptions& options, int64_t epoch) {
  const std::vector<int64_t> order = epoch_order(options, epoch);
  std::vector<int64_t> mine;
  mine.reserve(order.size() / static_cast<size_t>(options.world_size) + 1);
  for (size_t i = static_cast<size_t>(options.rank); i < order.size();
       i += static_cast<size_t>(options.world_size)) {
    mine.push_back(order[i]);
  }
  return mine;
}

}  // namespace deepspeed
