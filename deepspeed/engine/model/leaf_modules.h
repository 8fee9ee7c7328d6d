// DeepSpeed's leaf modules: at stage 3, using any parameter of a leaf gathers all of them at once, those of
// its children too. Parameters that a rank does not use get zero gradients. This is for modules, such as
// blocks of experts, whose parts are not used by every rank.
//
// Set marks before initialize(). If one rank uses a leaf in a pass, every rank in that pass must use at least
// one of its parameters, at the same place among the other modules; a router does so. A rank that uses none
// gets the error for diverging ranks, which names the leaf.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace torch::nn {
class Module;
}

namespace deepspeed {

using ModulePtr = std::shared_ptr<torch::nn::Module>;
using ModulePtrs = std::vector<ModulePtr>;

/// Marks the modules of `model`, itself included, that have one of these classes. A class is given by its
/// full C++ name ("my::Experts") or by what follows the last "::". Returns the marked modules. The functions
/// that take `model` throw UsageError if it is null; this one and the next five also if no module matches.
DEEPSPEED_API ModulePtrs set_z3_leaf_modules(const ModulePtr& model, const std::vector<std::string>& classes);
/// Marks modules by their names in the model ("h.0.experts").
DEEPSPEED_API ModulePtrs set_z3_leaf_modules_by_name(const ModulePtr& model,
                                                     const std::vector<std::string>& names);
/// Marks modules by the ends of their names ("experts").
DEEPSPEED_API ModulePtrs set_z3_leaf_modules_by_suffix(const ModulePtr& model,
                                                       const std::vector<std::string>& suffixes);
/// Removes the marks from modules of these classes, and returns these modules.
DEEPSPEED_API ModulePtrs unset_z3_leaf_modules(const ModulePtr& model,
                                               const std::vector<std::string>& classes);
DEEPSPEED_API ModulePtrs unset_z3_leaf_modules_by_name(const ModulePtr& model,
                                                       const std::vector<std::string>& names);
DEEPSPEED_API ModulePtrs unset_z3_leaf_modules_by_suffix(const ModulePtr& model,
                                                         const std::vector<std::string>& suffixes);

/// Returns the marked modules of a model.
DEEPSPEED_API ModulePtrs get_z3_leaf_modules(const ModulePtr& model);
DEEPSPEED_API void set_z3_leaf_module(const ModulePtr& module, bool is_leaf = true);
DEEPSPEED_API bool z3_leaf_module(const ModulePtr& module);
/// Returns whether the parameter belongs to a marked module or its children.
DEEPSPEED_API bool z3_leaf_parameter(const at::Tensor& parameter);

}  // namespace deepspeed
