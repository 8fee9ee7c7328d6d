// Makes a batch of examples by stacking each tensor of the example type along a new first dimension.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/export.h"
#include "deepspeed/tensor/visit_tensors.h"

namespace deepspeed {

namespace collate_detail {

/// Collects the tensors of examples in columns, one for each tensor of an example. Also keeps the other
/// values of the example that is being visited.
struct Columns {
  std::vector<std::vector<at::Tensor>> tensors = {};  // [tensor of the example][example]
  size_t next = 0;                                    // column
  std::string others = {};                            // the other values of the visited example, as bytes

  void operator()(at::Tensor& tensor) {
    if (next == tensors.size()) tensors.emplace_back();
    if (!tensors[next].empty() && tensors[next].front().sizes() != tensor.sizes()) {
      raise<UsageError>("examples 0 and ", tensors[next].size(), " of a batch have tensors of sizes ",
                        tensors[next].front().sizes(), " and ", tensor.sizes(),
                        ": make them equal, or pass a collate function that pads them");
    }
    tensors[next++].push_back(tensor);
    others += 't';
  }
  template <class T>
  void other(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      other(value.size());
      others += value;
    } else {
      others.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
};

}  // namespace collate_detail

/// Stacks examples into a batch. `examples`: at least one, all with tensors of equal sizes. Throws UsageError
/// if they differ in anything but tensor values. A batch has room for only one number or text, one set of
/// present optionals, one size of each vector and one set of map keys.
template <class Example>
Example stack_examples(std::vector<Example> examples) {
  if (examples.empty()) {
    raise<UsageError>("stack_examples(): examples is empty, expected at least one example");
  }
  collate_detail::Columns columns;
  std::string first;
  for (size_t index = 0; index < examples.size(); ++index) {
    columns.next = 0;
    columns.others.clear();
    visit_tensors(examples[index], columns);
    if (index == 0) first = columns.others;
    if (columns.others == first) continue;
    raise<UsageError>(
        "examples 0 and ", index,
        " of a batch differ in more than the values of their tensors: in a number or text, of which a "
        "batch has one, in which optionals are there, or in the size of a vector or the keys of a map; "
        "make the number a tensor, or pass a collate function");
  }
  Example batch = std::move(examples.front());
  size_t column = 0;
  visit_tensors(batch, [&](at::Tensor& tensor) { tensor = at::stack(columns.tensors[column++]); });
  return batch;
}

/// Calls stack_examples(); it is the default way to make batches.
struct DEEPSPEED_API StackExamples {
  template <class Example>
  Example operator()(std::vector<Example> examples) const {
    return stack_examples(std::move(examples));
  }
};

}  // namespace deepspeed
