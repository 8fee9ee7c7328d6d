// Loads weights in two steps, so that a file that does not fit changes nothing.
//
// The constructor goes through the file's weights (match). It renames each, finds its target, and checks
// sizes and dtype (check_copy). A second weight for the same target must have equal values (take). Then it
// looks for names that only one side has (check_names), and reports all problems in one error. If everything
// fits, the files are verified. run() copies one weight after the other, so only the largest takes memory
// besides the model.
#include "deepspeed/checkpoint/weights/weight_loading.h"

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <utility>

#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/weights/weight_renaming.h"

namespace deepspeed::checkpoint {
namespace {

constexpr size_t kNamedInMessages = 20;

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t index = 0; index < std::min(names.size(), kNamedInMessages); ++index)
    text += (index == 0 ? "'" : ", '") + names[index] + "'";
  if (names.size() > kNamedInMessages) text += message(" and ", names.size() - kNamedInMessages, " more");
  return text;
}

/// Returns whether values can be converted to the dtype `to`; `load` reads them. Floating point converts to
/// floating point by rounding. For an integer dtype the values have to be whole numbers, but may be in
/// floating point, because zero_to_fp32 turns counters into fp32.
bool can_become(at::ScalarType from, at::ScalarType to, const std::function<at::Tensor()>& load) {
  if (from == to) return true;
  if (at::isFloatingType(from) && at::isFloatingType(to)) return true;
  if (at::isComplexType(from) && at::isComplexType(to)) return true;
  if (at::isComplexType(from) || !at::isIntegralType(to, /*includeBool=*/true)) return false;
  const at::ScalarType compared = at::isFloatingType(from) ? at::kDouble : at::kLong;
  const at::Tensor values = load();
  return at::equal(values.to(to).to(compared), values.to(compared));
}

at::Tensor turned(const at::Tensor& tensor, bool transposed) {
  return transposed && tensor.dim() == 2 ? tensor.t() : tensor;
}

/// Returns whether two tensors of a file are equal views of the same bytes.
bool same_bytes(const at::Tensor& one, const at::Tensor& other) {
  return one.storage().is_alias_of(other.storage()) && one.storage_offset() == other.storage_offset() &&
         one.sizes() == other.sizes() && one.strides() == other.strides();
}

/// Suggests a rename rule if the names differ only by a prefix; otherwise returns "".
std::string prefix_hint(const LoadedWeights& names, const std::vector<WeightTarget>& targets) {
  if (names.unexpected.empty()) return "";
  std::unordered_set<std::string> known;
  for (const WeightTarget& target : targets) known.insert(target.names.begin(), target.names.end());
  const std::string& found = names.unexpected.front();
  for (const std::string& wanted : names.missing) {
    const bool file_has_prefix = found.ends_with("." + wanted);
    if (!file_has_prefix && !wanted.ends_with("." + found)) continue;
    const std::string prefix = file_has_prefix ? found.substr(0, found.size() - wanted.size())
                                               : wanted.substr(0, wanted.size() - found.size());
    const bool fits_all = std::ranges::all_of(names.unexpected, [&](const std::string& name) {
      if (!file_has_prefix) return known.contains(prefix + name);
      return name.starts_with(prefix) && known.contains(name.substr(prefix.size()));
    });
    if (!fits_all) continue;
    return file_has_prefix
               ? "; the file's names begin with '" + prefix + "', which a rename rule can take off"
               : "; the model's names begin with '" + prefix + "', which a rename rule can put before";
  }
  return "";
}

}  // namespace

WeightLoading::WeightLoading(std::shared_ptr<const WeightSource> source, std::vector<WeightTarget> targets,
                             const LoadWeightsOptions& options)
    : source_(std::move(source)), targets_(std::move(targets)) {
  match(options);
  check_names(options);
  if (!problems_.empty()) throw CheckpointError(problems_text());
  if (options.verify_first) source_->verify();
}

void WeightLoading::match(const LoadWeightsOptions& options) {
  const WeightRenaming renaming(options.rename, options.rename_rules);
  const NamePatterns transposed(options.transpose);
  std::unordered_map<std::string, size_t> target_of;
  for (size_t target = 0; target < targets_.size(); ++target) {
    for (const std::string& name : targets_[target].names) target_of.emplace(name, target);
  }
  std::unordered_map<std::string, std::string> taken;  // name in the model -> name in the file
  for (size_t weight = 0; weight < source_->weights().size(); ++weight) {
    const std::string& name = source_->weights()[weight].name;
    const auto renamed = renaming.rename(name);
    if (!renamed) continue;
    const auto target = target_of.find(*renamed);
    if (target == target_of.end()) {
      result_.unexpected.push_back(name);
      continue;
    }
    const auto [first, is_new] = taken.emplace(*renamed, name);
    if (is_new) {
      take({weight, target->second, transposed.fit(*renamed)}, *renamed);
    } else {
      problems_.push_back(
          message("'", first->second, "' and '", name, "' are both renamed to '", *renamed, "'"));
    }
  }
  for (const std::string& name : source_->other_entries()) {
    if (renaming.rename(name)) result_.unexpected.push_back(name);
  }
}

void WeightLoading::take(const Copy& copy, const std::string& name) {
  const size_t problems_before = problems_.size();
  check_copy(copy, name);
  const auto [known, is_new] = copy_of_target_.emplace(copy.target, copies_.size());
  if (is_new) {
    copies_.push_back(copy);
    result_.loaded.push_back(name);
    return;
  }
  const Copy& first = copies_[known->second];
  if (problems_.size() == problems_before && !same_data(first, copy)) {
    problems_.push_back(message("'", source_->weights()[first.weight].name, "' and '",
                                source_->weights()[copy.weight].name,
                                "' differ in the file and are one parameter in the model"));
  }
}

void WeightLoading::check_copy(const Copy& copy, const std::string& name) {
  const at::Tensor weight = turned(source_->weights()[copy.weight].tensor, copy.transposed);
  const at::Tensor& target = targets_[copy.target].tensor;
  if (weight.sizes() != target.sizes()) {
    problems_.push_back(message("'", name, "' has the shape ", weight.sizes(), " in the file",
                                copy.transposed ? ", transposed" : "", ", ", target.sizes(),
                                " in the model"));
  } else if (!can_become(weight.scalar_type(), target.scalar_type(), [&] { return load(copy); })) {
    problems_.push_back(message("'", name, "' has the dtype ", at::toString(weight.scalar_type()),
                                " in the file, whose values cannot become the model's ",
                                at::toString(target.scalar_type())));
  }
  if (target.is_meta())
    problems_.push_back(message("'", name, "' has no memory in the model: it is on the meta device"));
}

bool WeightLoading::same_data(const Copy& one, const Copy& other) const {
  if (one.transposed == other.transposed &&
      same_bytes(source_->weights()[one.weight].tensor, source_->weights()[other.weight].tensor)) {
    return true;
  }
  const at::Tensor first = load(one), second = load(other);
  return first.sizes() == second.sizes() && at::equal(first, second.to(first.scalar_type()));
}

void WeightLoading::check_names(const LoadWeightsOptions& options) {
  for (size_t target = 0; target < targets_.size(); ++target) {
    if (!copy_of_target_.contains(target)) result_.missing.push_back(targets_[target].names.front());
  }
  std::unordered_set<std::string> names(source_->other_entries().begin(), source_->other_entries().end());
  for (const auto& [name, tensor] : source_->weights()) names.insert(name);
  for (const auto& [name, renamed] : options.rename) {
    if (!names.contains(name))
      problems_.push_back(
          message("'", name, "', which is to be renamed to '", renamed, "', is not in the file"));
  }
  names_differ_ = options.strict && !(result_.missing.empty() && result_.unexpected.empty());
  if (!options.strict) return;
  if (!result_.missing.empty()) problems_.push_back("the file lacks " + list_of(result_.missing));
  if (!result_.unexpected.empty()) problems_.push_back("the model has no " + list_of(result_.unexpected));
}

std::string WeightLoading::problems_text() const {
  std::string text = located(source_->path(), " does not fit the model: ");
  for (size_t index = 0; index < std::min(problems_.size(), kNamedInMessages); ++index)
    text += (index == 0 ? "" : "; ") + problems_[index];
  if (problems_.size() > kNamedInMessages)
    text += message("; and ", problems_.size() - kNamedInMessages, " more");
  text += prefix_hint(result_, targets_) + ". Nothing was changed";
  if (names_differ_)
    text += "; rename and rename_rules adapt names, strict = false loads those that both have";
  return text;
}

at::Tensor WeightLoading::load(const Copy& copy) const {
  return turned(source_->load(copy.weight), copy.transposed);
}

void WeightLoading::run() const {
  const c10::NoGradGuard no_grad;
  for (const Copy& copy : copies_) {
    const WeightTarget& target = targets_[copy.target];
    if (target.set) {
      target.set(load(copy));
    } else {
      target.tensor.detach().copy_(load(copy));
    }
  }
}

}  // namespace deepspeed::checkpoint
