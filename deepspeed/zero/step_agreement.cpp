#include "deepspeed/zero/step_agreement.h"

#include <string>
#include <utility>
#include <variant>

#include "deepspeed/base/hash.h"
#include "deepspeed/base/json.h"
#include "deepspeed/base/message.h"

namespace deepspeed::zero {
namespace {

// An integer counts as equal to the same floating-point number: optimizers read both.
struct AddValue {
  Hash& hash;
  void operator()(bool value) const { hash.add(uint64_t{value}); }
  void operator()(int64_t value) const { hash.add(static_cast<double>(value)); }
  void operator()(double value) const { hash.add(value); }
  void operator()(const std::string& value) const { hash.add(value); }
  void operator()(const std::pair<double, double>& value) const {
    hash.add(value.first);
    hash.add(value.second);
  }
};

struct ValueText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return (*this)(static_cast<double>(value)); }
  std::string operator()(double value) const { return Json(value).dump(); }
  std::string operator()(const std::string& value) const { return "'" + value + "'"; }
  std::string operator()(const std::pair<double, double>& value) const {
    return message("(", (*this)(value.first), ", ", (*this)(value.second), ")");
  }
};

// Returns a hash that does not depend on the order in which the values were set.
uint64_t hash_of_group(const optim::ParamGroup& group) {
  uint64_t sum = 0;
  for (const auto& [name, value] : group.options.items()) {
    Hash hash;
    hash.add(name);
    std::visit(AddValue{hash}, value);
    sum += hash.value();
  }
  return sum;
}

uint64_t hash_of(const std::vector<optim::ParamGroup>& groups, double loss_scale,
                 const BatchSettings& batch) {
  Hash hash;
  for (const optim::ParamGroup& group : groups) hash.add(hash_of_group(group));
  hash.add(loss_scale);
  hash.add(static_cast<uint64_t>(batch.gradient_accumulation_steps));
  hash.add(static_cast<uint64_t>(batch.train_micro_batch_size_per_gpu));
  hash.add(uint64_t{batch.is_boundary});
  hash.add(uint64_t{batch.averages_gradients});
  return hash.value() | 1;  // 0 means that nothing is compared
}

std::vector<optim::ParamGroup> without_names(const std::vector<optim::ParamGroup>& groups) {
  std::vector<optim::ParamGroup> copies(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) copies[i].options = groups[i].options;
  return copies;
}

comm::NamedTexts texts_of(const std::vector<optim::ParamGroup>& groups, double loss_scale,
                          const BatchSettings& batch) {
  comm::NamedTexts texts = {
      {"gradient_accumulation_steps", std::to_string(batch.gradient_accumulation_steps)},
      {"train_micro_batch_size_per_gpu", std::to_string(batch.train_micro_batch_size_per_gpu)}};
  for (auto& entry : hyperparameter_texts(groups)) texts.push_back(std::move(entry));
  texts.emplace_back("the loss scale", Json(loss_scale).dump());
  texts.emplace_back("is_gradient_accumulation_boundary()", batch.is_boundary ? "true" : "false");
  texts.emplace_back("gradient_average()", batch.averages_gradients ? "true" : "false");
  return texts;
}

}  // namespace

comm::NamedTexts hyperparameter_texts(const std::vector<optim::ParamGroup>& groups) {
  comm::NamedTexts texts;
  for (size_t index = 0; index < groups.size(); ++index) {
    for (const auto& [name, value] : groups[index].options.items()) {
      texts.emplace_back(message(name, " of parameter group ", index), std::visit(ValueText{}, value));
    }
  }
  return texts;
}

void StepAgreement::tell(const std::vector<optim::ParamGroup>& groups, double loss_scale) {
  const uint64_t hash = hash_of(groups, loss_scale, batch_);
  const auto before = values_->get();
  if (before && before->hash == hash) return;
  values_->set({hash, [copies = without_names(groups), loss_scale, batch = batch_] {
                  return texts_of(copies, loss_scale, batch);
                }});
}

}  // namespace deepspeed::zero
