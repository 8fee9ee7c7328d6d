// Implements Muon's step over the segments of a slice (Jordan et al. 2024; formulas in muon.h).
//
// step() first makes the states that all slices of the group need. Then changes_of_cut() handles matrices
// that partitions cut. Each rank updates the momentum of its own part. change_whole() assembles a matrix on
// one rank, which orthogonalizes it, and returns each rank's part of the result. These calls are collective,
// so they come before the loop over this rank's own segments. The loop steps vectors, embeddings and heads by
// Adam. It orthogonalizes whole matrices on the model's device, and applies this rank's part of the shared
// ones.
#include "deepspeed/optim/algorithms/muon.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <ATen/ops/empty_like.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/kernels/adam.h"
#include "deepspeed/kernels/newton_schulz.h"
#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/slices/whole_parameters.h"

namespace deepspeed::optim {
namespace {

constexpr const char* kMomentum = "momentum_buffer";

std::vector<ParamGroup> with_muon_defaults(std::vector<ParamGroup> groups) {
  for (ParamGroup& group : groups) {
    std::vector<ParamGroup> one{std::move(group)};
    const Hyperparameters& options = one[0].options;
    const bool decided = options.contains("use_muon");
    if (!decided || options.flag("use_muon")) {
      set_defaults(
          one, {{"lr", 0.02}, {"momentum", 0.95}, {"weight_decay", 0.0}, {"ns_method", std::string("gram")}});
      kernels::newton_schulz_method(options.text("ns_method"));
    }
    if (!decided || !options.flag("use_muon")) {
      set_defaults(one, {{decided ? "lr" : "adam_lr", 3e-4},
                         {"betas", std::pair{0.9, 0.95}},
                         {"eps", 1e-10},
                         {"weight_decay", 0.0}});
    }
    group = std::move(one[0]);
  }
  return groups;
}

// Returns the shape in which a parameter is orthogonalized; convolutions become matrices.
std::vector<int64_t> matrix_shape(const std::vector<int64_t>& shape) {
  return shape.size() == 4 ? std::vector<int64_t>{shape[0], shape[1] * shape[2] * shape[3]} : shape;
}

double shape_factor(const std::vector<int64_t>& shape) {
  const auto rows = static_cast<double>(shape[shape.size() - 2]), cols = static_cast<double>(shape.back());
  return std::sqrt(std::max(1.0, rows / cols));
}

}  // namespace

bool uses_muon(const std::string& param_name, int64_t num_dims) {
  const std::string lower = lowercase(param_name);
  return num_dims >= 2 && lower.find("embed") == std::string::npos &&
         lower.find("lm_head") == std::string::npos;
}

Muon::Muon(std::vector<ParamGroup> groups)
    : Optimizer(with_muon_defaults(std::move(groups))),
      momenta_({kMomentum}),
      moments_({"exp_avg", "exp_avg_sq"}) {
  for (const ParamGroup& group : param_groups()) {
    initial_lrs_.push_back(group.lr());
  }
}

std::string Muon::param_name(size_t group, int64_t param_index) const {
  const auto& names = param_groups()[group].param_names;
  const auto index = static_cast<size_t>(param_index);
  return index < names.size() ? names[index] : "";
}

bool Muon::uses_muon_for(size_t group, int64_t param_index, size_t num_dims) const {
  const Hyperparameters& options = param_groups()[group].options;
  if (!options.contains("use_muon")) {
    return uses_muon(param_name(group, param_index), static_cast<int64_t>(num_dims));
  }
  if (options.flag("use_muon") && num_dims < 2) {
    raise<UsageError>(
        "parameter '", param_name(group, param_index), "' has ", num_dims,
        " dimensions, but its group has use_muon: true, which is for matrices; put it into a group with ",
        "use_muon: false");
  }
  return options.flag("use_muon");
}

at::Tensor Muon::change_of(const FlatSlice& slice, const Segment& segment, double gradient_scale) {
  const double momentum = param_groups()[slice.group].options.number("momentum");
  kernels::MuonMomentumRule average;
  average.gradient_scale = gradient_scale;
  average.momentum = momentum;
  average.one_minus_momentum = 1 - momentum;
  const at::Tensor weights = part_of(slice.master, segment);
  at::Tensor change = at::empty_like(weights);
  kernels::update({weights,
                   part_of(slice.gradient, segment),
                   {},
                   {{kMomentum, part_of(momenta_.of(slice).tensors[0], segment)}, {"update", change}},
                   slice.scale_on_device},
                  average);
  return change;
}

std::unordered_map<int64_t, at::Tensor> Muon::changes_of_cut(const FlatSlice& slice, double gradient_scale) {
  std::unordered_map<int64_t, at::Tensor> changes;
  if (slice.cut == nullptr) {
    return changes;
  }
  const auto& cut = slice.cut->all();
  std::vector<CutParameters::Part> parts;
  for (size_t i = 0; i < cut.size(); ++i) {
    if (!uses_muon_for(slice.group, cut[i].param_index, cut[i].shape.size())) {
      continue;
    }
    const Segment* segment = find_segment(slice, cut[i].param_index);
    parts.push_back({i, segment == nullptr ? at::Tensor() : change_of(slice, *segment, gradient_scale)});
  }
  const auto results = slice.cut->change_whole(parts, [&](size_t i, const at::Tensor& whole) {
    return orthogonalized(slice.group, cut[i].shape, whole);
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    if (results[i].defined()) {
      changes[cut[parts[i].index].param_index] = results[i];
    }
  }
  return changes;
}

at::Tensor Muon::orthogonalized(size_t group, const std::vector<int64_t>& shape,
                                const at::Tensor& change) const {
  const auto method = kernels::newton_schulz_method(param_groups()[group].options.text("ns_method"));
  return kernels::orthogonalize(change.to(at::kFloat).view(matrix_shape(shape)), method)
      .mul_(shape_factor(shape))
      .reshape({-1})
      .to(change.scalar_type());
}

void Muon::move_matrix(const FlatSlice& slice, const Segment& segment, const at::Tensor& change) {
  const Hyperparameters& group = param_groups()[slice.group].options;
  kernels::SgdRule move;
  move.lr = group.number("lr");
  move.l2_decay = group.number("weight_decay");
  kernels::update({part_of(slice.master, segment), change, part_of(slice.low_precision, segment), {}}, move);
}

void Muon::step_adam(const FlatSlice& slice, const Segment& segment, double gradient_scale, int64_t step) {
  const Hyperparameters& group = param_groups()[slice.group].options;
  kernels::AdamStep adam;
  adam.lr = group.number("lr");
  if (!group.contains("use_muon")) {
    const double initial_lr = initial_lrs_.at(slice.group);
    adam.lr = group.number("adam_lr") * (initial_lr == 0 ? 1.0 : adam.lr / initial_lr);
  }
  std::tie(adam.beta1, adam.beta2) = group.pair("betas");
  adam.eps = group.number("eps");
  adam.weight_decay = group.number("weight_decay");
  adam.step = step;
  adam.gradient_scale = gradient_scale;
  const SliceStates::Entry& entry = moments_.of(slice);
  kernels::adam(
      {part_of(slice.master, segment), part_of(slice.gradient, segment), part_of(entry.tensors[0], segment),
       part_of(entry.tensors[1], segment), part_of(slice.low_precision, segment), slice.scale_on_device},
      adam);
}

// Gives all slices of a group states with the same names, so that checkpoints can join them.
void Muon::make_states(const FlatSlice& slice) {
  if (slice.cut == nullptr) {
    return;
  }
  const Hyperparameters& group = param_groups()[slice.group].options;
  const bool decided = group.contains("use_muon");
  if (!decided || group.flag("use_muon")) {
    momenta_.of(slice);
  }
  if (!decided || !group.flag("use_muon")) {
    moments_.of(slice);
  }
}

void Muon::step(const FlatSlice& slice, double gradient_scale) {
  options_of(*this, slice);
  const std::vector<Segment>& segments = segments_of(slice);
  const int64_t step = std::max(momenta_.state(slice.id).step, moments_.state(slice.id).step) + 1;
  make_states(slice);
  const auto cut = changes_of_cut(slice, gradient_scale);
  for (const Segment& segment : segments) {
    if (!uses_muon_for(slice.group, segment.param_index, segment.shape.size())) {
      step_adam(slice, segment, gradient_scale, step);
      continue;
    }
    const auto shared = cut.find(segment.param_index);
    if (shared == cut.end()) {
      check_whole_parameter(slice, segment);
      const at::Tensor change = change_of(slice, segment, gradient_scale);
      // The matrix products run on the model's device, even if masters and momentum are in host memory.
      const at::Device device = slice.cut == nullptr ? change.device() : slice.cut->device();
      move_matrix(slice, segment,
                  orthogonalized(slice.group, segment.shape, change.to(device)).to(change.device()));
    } else {
      move_matrix(slice, segment, shared->second);
    }
  }
  for (SliceStates* states : {&momenta_, &moments_}) {
    if (!states->state(slice.id).tensors.empty()) {
      states->of(slice).step = step;
    }
  }
}

SliceState Muon::state(size_t slice_id) const {
  SliceState all = momenta_.state(slice_id);
  const SliceState moments = moments_.state(slice_id);
  all.tensors.insert(all.tensors.end(), moments.tensors.begin(), moments.tensors.end());
  all.step = std::max(all.step, moments.step);
  return all;
}

Muon::TwoStates Muon::apart(const SliceState& state) {
  TwoStates both;
  for (const auto& item : state.tensors) {
    (item.first == kMomentum ? both.momentum : both.moments).tensors.push_back(item);
  }
  both.momentum.step = both.moments.step = state.step;
  return both;
}

void Muon::check_state(const SliceState& state) const {
  const auto [momentum, moments] = apart(state);
  if (!moments.tensors.empty()) moments_.check_state(moments);
}

void Muon::load_state(size_t slice_id, const SliceState& state) {
  const auto [momentum, moments] = apart(state);
  if (!moments.tensors.empty()) {
    moments_.load_state(slice_id, moments);
  }
  if (!momentum.tensors.empty()) {
    momenta_.load_state(slice_id, momentum);
  }
}

}  // namespace deepspeed::optim
