#include "deepspeed/engine/guards/rank_agreement.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/json.h"
#include "deepspeed/config/agreed_values.h"
#include "deepspeed/zero/step_agreement.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {
namespace {

using comm::NamedTexts;

// Ordered from causes to consequences, because only the first part that differs is reported.
using Comparison = std::vector<NamedTexts>;

const char* origin(bool of_program, bool of_config) {
  if (of_program) return "the program";
  return of_config ? "the config" : "nowhere";
}

NamedTexts options_of(const RankInput& input) {
  NamedTexts texts = config::agreed_values(input.config);
  texts.emplace_back("the optimizer's origin",
                     origin(input.own_optimizer, input.config.optimizer.has_value()));
  texts.emplace_back("the schedule's origin", origin(input.own_schedule, input.config.scheduler.has_value()));
  return texts;
}

NamedTexts hyperparameters_of(const RankInput& input) {
  if (input.optimizer == nullptr) return {};
  NamedTexts texts = zero::hyperparameter_texts(input.optimizer->param_groups());
  texts.insert(texts.begin(), {"the optimizer", input.optimizer->name()});
  return texts;
}

std::string describe_tensor(const at::Tensor& tensor) {
  std::string shape;
  for (const int64_t size : tensor.sizes()) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  return message("(", shape, ") ", c10::toString(tensor.scalar_type()));
}

// Maps a parameter's name to "in group 0"; empty without an optimizer.
std::unordered_map<std::string, std::string> groups_by_name(const RankInput& input) {
  std::unordered_map<std::string, std::string> groups;
  if (input.optimizer == nullptr) return groups;
  const auto& all = input.optimizer->param_groups();
  for (size_t index = 0; index < all.size(); ++index) {
    for (const std::string& name : all[index].param_names) groups[name] = message(", in group ", index);
  }
  return groups;
}

NamedTexts tensors_of(const RankInput& input) {
  NamedTexts texts;
  const auto groups = groups_by_name(input);
  for (const NamedTensor& param : input.model.parameters) {
    const auto group = groups.find(param.name);
    const char* untrained = input.optimizer == nullptr ? "" : ", not trained";
    texts.emplace_back("parameter '" + param.name + "'",
                       describe_tensor(param.tensor) + (group == groups.end() ? untrained : group->second));
  }
  for (const NamedTensor& buffer : input.model.buffers)
    texts.emplace_back("buffer '" + buffer.name + "'", describe_tensor(buffer.tensor));
  return texts;
}

void add_order(NamedTexts& texts, const std::string& what, const std::vector<std::string>& names) {
  for (size_t index = 0; index < names.size(); ++index)
    texts.emplace_back(message(what, " ", index), "'" + names[index] + "'");
}

NamedTexts orders_of(const RankInput& input) {
  NamedTexts texts;
  for (const auto& [what, tensors] :
       {std::pair("parameter", &input.model.parameters), std::pair("buffer", &input.model.buffers)}) {
    std::vector<std::string> names;
    for (const NamedTensor& entry : *tensors) names.push_back(entry.name);
    add_order(texts, what, names);
  }
  if (input.optimizer == nullptr) return texts;
  const auto& groups = input.optimizer->param_groups();
  for (size_t index = 0; index < groups.size(); ++index)
    add_order(texts, message("in group ", index, " parameter"), groups[index].param_names);
  return texts;
}

Comparison comparison_of(const RankInput& input) {
  return {options_of(input), hyperparameters_of(input), tensors_of(input), orders_of(input)};
}

// Hashes what the ranks compare into a number that a double holds exactly.
double number_of(const Comparison& comparison) {
  Hash hash;
  for (const NamedTexts& texts : comparison) {
    hash.add(static_cast<uint64_t>(texts.size()));
    for (const auto& [name, text] : texts) {
      hash.add(name);
      hash.add(text);
    }
  }
  return static_cast<double>(hash.value() >> 12);
}

std::string first_difference(int rank, const Comparison& own, int other_rank, const Comparison& other) {
  for (size_t part = 0; part < own.size(); ++part) {
    auto text = comm::describe_differences(rank, own[part], other_rank, other[part]);
    if (!text.empty()) return text;
  }
  return "their input has different hashes";
}

[[noreturn]] void name_difference(const comm::ProcessGroup& group, const Comparison& own) {
  const auto texts = group.all_gather_text(Json(own).dump(-1, ' ', true, Json::error_handler_t::replace));
  const auto differs = [&](const std::string& text) { return text != texts[0]; };
  const auto place = size_t(std::find_if(texts.begin(), texts.end(), differs) - texts.begin());
  const size_t other = std::min(place, texts.size() - 1);
  const auto& ranks = group.global_ranks();
  raise<UsageError>("the ranks differ: ",
                    first_difference(ranks[0], Json::parse(texts[0]).get<Comparison>(), ranks[other],
                                     Json::parse(texts[other]).get<Comparison>()),
                    "; pass the same config, model, optimizer and schedule on all ranks");
}

void require_equal(const comm::ProcessGroup& group, const Comparison& own) {
  if (group.size() == 1) return;
  const auto numbers = group.all_gather_scalar(number_of(own));
  if (std::all_of(numbers.begin(), numbers.end(), [&](double other) { return other == numbers[0]; })) return;
  name_difference(group, own);
}

}  // namespace

void require_agreement(const comm::ProcessGroup& group, const RankInput& input) {
  require_equal(group, comparison_of(input));
}

void require_agreement_of_options(const comm::ProcessGroup& group, const RankInput& input) {
  require_equal(group, {options_of(input), hyperparameters_of(input)});
}

}  // namespace deepspeed
