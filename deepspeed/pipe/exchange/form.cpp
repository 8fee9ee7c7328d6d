#include "deepspeed/pipe/exchange/form.h"

#include <numeric>
#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

namespace deepspeed::pipe {

int64_t TensorForm::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

Form form_of(const Tensors& values) {
  Form form;
  for (const at::Tensor& value : values) {
    if (value.defined()) {
      form.push_back({true, value.scalar_type(), value.sizes().vec(), value.requires_grad()});
    } else {
      form.emplace_back();
    }
  }
  return form;
}

Form form_of_gradients(const Form& values) {
  Form form = values;
  for (TensorForm& one : form) one.is_defined = one.is_defined && one.requires_grad;
  return form;
}

std::string describe(const Form& form) {
  std::ostringstream text;
  for (size_t i = 0; i < form.size(); ++i) {
    if (i > 0) text << ", ";
    if (form[i].is_defined) {
      text << at::IntArrayRef(form[i].sizes) << " " << form[i].dtype;
    } else {
      text << "none";
    }
  }
  return text.str();
}

at::Tensor encode(const Form& form) {
  std::vector<int64_t> numbers = {int64_t(form.size())};
  for (const TensorForm& one : form) {
    numbers.insert(numbers.end(),
                   {one.is_defined, int64_t(one.dtype), one.requires_grad, int64_t(one.sizes.size())});
    numbers.insert(numbers.end(), one.sizes.begin(), one.sizes.end());
  }
  return at::tensor(numbers, at::kLong);
}

Form decode(const at::Tensor& numbers) {
  const int64_t* next = numbers.const_data_ptr<int64_t>();
  Form form(size_t(*next++));
  for (TensorForm& one : form) {
    one.is_defined = *next++ != 0;
    one.dtype = at::ScalarType(*next++);
    one.requires_grad = *next++ != 0;
    one.sizes.resize(size_t(*next++));
    for (int64_t& size : one.sizes) size = *next++;
  }
  return form;
}

Tensors make_tensors(const Form& form, at::Device device) {
  Tensors values;
  for (const TensorForm& one : form) {
    values.push_back(one.is_defined
                         ? at::empty(one.sizes, at::TensorOptions().dtype(one.dtype).device(device))
                         : at::Tensor());
  }
  return values;
}

Tensors as_leaves(const Tensors& values, const Form& form) {
  Tensors leaves;
  for (size_t i = 0; i < values.size(); ++i) {
    at::Tensor leaf = values[i].defined() ? values[i].detach() : values[i];
    if (leaf.defined() && form[i].requires_grad) leaf.requires_grad_();
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

}  // namespace deepspeed::pipe
