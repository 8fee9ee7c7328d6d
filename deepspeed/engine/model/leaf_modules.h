// DeepSpeed has leaf modules: at stage 3 all parameters of a leaf, its children's too, are gathered as one as
// soon as one of them is used. What a rank does not use of it has gradients of zero. This is for modules of
// which ranks use different parts, such as blocks of experts.
//
// Marks are set before initialize(). Each rank that runs a pass uses at least one parameter of each leaf that
// others use in it, at the same place among the other modules (a router does): a rank that uses none gets
// the error of ranks that part ways, which names the leaf.
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

/// Marks the modules of `model`, itself included, of these classes: by full name, as C++ spells it
/// ("my::Experts"), or by what follows its last "::". Returns them. All throw UsageError for a model that is
/// null, and the six that follow where no module fits.
DEEPSPEED_API ModulePtrs set_z3_leaf_modules(const ModulePtr& model, const std::vector<std::string>& classes);
/// Marks modules by their names in the model ("h.0.experts").
DEEPSPEED_API ModulePtrs set_z3_leaf_modules_by_name(const ModulePtr& model,
                                                     const std::vector<std::string>& names);
/// Marks modules by the ends of their names ("experts").
DEEPSPEED_API ModulePtrs set_z3_leaf_modules_by_suffix(const ModulePtr& model,
                                                       const std::vector<std::string>& suffixes);
/// Takes the marks of modules of these classes away.
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
/// Says whether the parameter is one of a marked module or its children.
DEEPSPEED_API bool z3_leaf_parameter(const at::Tensor& parameter);

}  // namespace deepspeed
