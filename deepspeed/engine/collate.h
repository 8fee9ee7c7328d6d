// Makes a batch of examples: every tensor of the example type stacked along a new first dimension.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/visit_tensors.h"

namespace deepspeed {

/// `examples`: at least one, all with tensors of the same sizes. Members that are no tensors are those of the
/// first.
template <class Example>
Example stack_examples(std::vector<Example> examples) {
  if (examples.empty()) raise<UsageError>("collate", "a batch of no examples");
  std::vector<std::vector<at::Tensor>> columns;  // [tensor of the example][example]
  for (Example& example : examples) {
    size_t column = 0;
    visit_tensors(example, [&](at::Tensor& tensor) {
      if (column == columns.size()) columns.emplace_back();
      columns[column++].push_back(tensor);
    });
  }
  Example batch = std::move(examples.front());
  size_t column = 0;
  visit_tensors(batch, [&](at::Tensor& tensor) {
    if (columns[column].size() != examples.size()) {
      raise<UsageError>("collate", "the examples of a batch hold different numbers of tensors");
    }
    tensor = at::stack(columns[column++]);
  });
  return batch;
}

/// stack_examples() as a type: how batches are made unless told otherwise.
struct StackExamples {
  template <class Example>
  Example operator()(std::vector<Example> examples) const {
    return stack_examples(std::move(examples));
  }
};

}  // namespace deepspeed
