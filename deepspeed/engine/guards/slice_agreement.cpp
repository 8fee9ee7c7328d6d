#include "deepspeed/engine/guards/slice_agreement.h"

#include <algorithm>

#include <ATen/ops/view_as_real.h>

#include "deepspeed/base/hash.h"
#include "deepspeed/base/json.h"
#include "deepspeed/base/message.h"
#include "deepspeed/checkpoint/file/crc32.h"
#include "deepspeed/engine/guards/sendable.h"
#include "deepspeed/zero/params/set_values.h"

namespace deepspeed {
namespace {

// Returns what this rank holds of a parameter, without padding; undefined if it is not compared.
at::Tensor compared_values(const at::Tensor& param, const SliceRanks& ranks) {
  if (param.is_meta()) return {};
  if (!zero::is_partitioned(param))
    return ranks.compares_whole ? sendable(param.detach()).contiguous() : at::Tensor();
  const std::vector<int> holders = zero::ranks_that_hold(param);
  const auto is_held_by = [&](int rank) { return std::ranges::count(holders, rank) > 0; };
  if (std::ranges::count_if(ranks.slices, is_held_by) > 1) return {};  // the slices share one copy
  return zero::own_elements_of(param);
}

std::string describe_values(const at::Tensor& param, const at::Tensor& values) {
  const at::Tensor host = values.cpu();
  return message(param.sizes(), " with the checksum ",
                 checkpoint::crc32(0, host.const_data_ptr(), host.nbytes()));
}

// Describes this rank's values by name, and names the first slice of its layers.
Json texts_of(const SliceRanks& ranks, const std::vector<NamedTensor>& alike) {
  Json texts = Json::object();
  for (const NamedTensor& param : alike) {
    const at::Tensor values = compared_values(param.tensor, ranks);
    if (values.defined()) texts[param.name] = describe_values(param.tensor, values);
  }
  return {{"first", ranks.slices.front()}, {"texts", std::move(texts)}};
}

}  // namespace

std::string difference_of_slices(const SliceRanks& ranks, const std::vector<NamedTensor>& alike) {
  const std::string own = texts_of(ranks, alike).dump(-1, ' ', true, Json::error_handler_t::replace);
  Hash hash;
  hash.add(own);
  const auto number = static_cast<double>(hash.value() >> 12);
  const auto numbers = ranks.model.all_gather_scalar(number);
  if (std::ranges::all_of(numbers, [&](double other) { return other == numbers[0]; })) return "";
  const std::vector<std::string> gathered = ranks.model.all_gather_text(own);
  const std::vector<int>& global = ranks.model.global_ranks();
  std::vector<Json> all;
  for (const std::string& text : gathered) all.push_back(Json::parse(text));
  for (size_t one = 0; one < all.size(); ++one) {
    const auto first = size_t(std::ranges::find(global, all[one]["first"].get<int>()) - global.begin());
    if (first >= all.size()) continue;
    for (const auto& [name, text] : all[one]["texts"].items()) {
      const auto other = all[first]["texts"].find(name);
      if (other == all[first]["texts"].end() || *other == text) continue;
      return message("'", name, "' is ", other->get<std::string>(), " on rank ", global[first], " and ",
                     text.get<std::string>(), " on rank ", global[one]);
    }
  }
  return "";
}

}  // namespace deepspeed
