#include "deepspeed/precision/autocast.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include <ATen/autocast_mode.h>

#include "deepspeed/base/error.h"

namespace deepspeed::precision {
namespace {

/// Holds the marks of set_autocast_dtype() by tensor. The references are weak: a mark does not keep its
/// parameter alive, and a new tensor at the address of a deleted one has no mark. Expired marks are dropped
/// each time the number of marks has doubled.
struct Marks {
  struct Mark {
    c10::weak_intrusive_ptr<at::TensorImpl> param;
    at::ScalarType dtype;
  };
  std::mutex mutex;
  std::unordered_map<const at::TensorImpl*, Mark> of;
  size_t prune_at = 64;
  bool initialized = false;

  void prune() {
    if (of.size() < prune_at) return;
    std::erase_if(of, [](const auto& entry) { return entry.second.param.expired(); });
    prune_at = std::max<size_t>(64, 2 * of.size());
  }
};

Marks& marks() {
  static auto& instance = *new Marks;
  return instance;
}

/// Converts "torch::nn::LinearImpl" to "torch.nn.Linear". A name in Python's form stays as it is.
std::string python_name(const std::string& class_name) {
  std::string name;
  for (const char c : class_name) {
    const bool ends_scope = c == ':' && name.ends_with(':');
    if (ends_scope)
      name.back() = '.';
    else
      name += c;
  }
  constexpr std::string_view kImpl = "Impl";
  if (name.size() > kImpl.size() && name.ends_with(kImpl)) name.resize(name.size() - kImpl.size());
  return name;
}

}  // namespace

AutocastScope::AutocastScope(at::DeviceType device, at::ScalarType dtype)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_dtype_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
}

at::ScalarType default_autocast_dtype(at::DeviceType device) {
  return device == at::kCPU ? at::kBFloat16 : at::kHalf;
}

std::vector<std::string> get_default_autocast_lower_precision_modules() {
  return {"torch.nn.Linear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d"};
}

bool is_autocast_module(const std::string& class_name, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return python_name(name) == python_name(class_name); });
}

void set_autocast_dtype(const at::Tensor& param, at::ScalarType dtype) {
  auto& all = marks();
  const std::lock_guard lock(all.mutex);
  all.initialized = true;
  all.prune();
  all.of.insert_or_assign(
      param.unsafeGetTensorImpl(),
      Marks::Mark{c10::weak_intrusive_ptr<at::TensorImpl>(param.getIntrusivePtr()), dtype});
}

void clear_autocast_dtype(const at::Tensor& param) {
  auto& all = marks();
  const std::lock_guard lock(all.mutex);
  all.of.erase(param.unsafeGetTensorImpl());
}

std::optional<at::ScalarType> find_autocast_dtype(const at::Tensor& param) {
  auto& all = marks();
  const std::lock_guard lock(all.mutex);
  const auto entry = all.of.find(param.unsafeGetTensorImpl());
  if (entry == all.of.end() || entry->second.param.expired()) return std::nullopt;
  return entry->second.dtype;
}

bool has_autocast_dtype(const at::Tensor& param) { return find_autocast_dtype(param).has_value(); }

at::ScalarType get_autocast_dtype(const at::Tensor& param) {
  const auto dtype = find_autocast_dtype(param);
  if (dtype) return *dtype;
  raise<UsageError>(
      "the parameter of sizes ", param.sizes(),
      " has no autocast dtype; init_autocast_params() gives one to those of the listed modules");
}

bool is_autocast_initialized() {
  auto& all = marks();
  const std::lock_guard lock(all.mutex);
  return all.initialized;
}

}  // namespace deepspeed::precision
