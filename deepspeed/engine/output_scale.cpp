#include "deepspeed/engine/output_scale.h"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

namespace deepspeed {
namespace {

class ScaleGradient : public torch::autograd::Function<ScaleGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            std::shared_ptr<const OutputScale> scale) {
    context->saved_data["scale"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(scale)));
    return output.view_as(output);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["scale"].toCapsule());
    const double factor = holder->scale->factor;
    at::Tensor gradient = gradients[0];
    if (gradient.defined() && factor != 1.0) gradient = gradient.mul(factor);
    return {gradient, at::Tensor()};
  }

 private:
  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<const OutputScale> given) : scale(std::move(given)) {}
    std::shared_ptr<const OutputScale> scale;
  };
};

}  // namespace

at::Tensor scale_gradient_of(const at::Tensor& output, std::shared_ptr<const OutputScale> scale) {
  if (!output.defined() || !output.requires_grad()) return output;
  return ScaleGradient::apply(output, std::move(scale));
}

}  // namespace deepspeed
