#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/ops/embedding_gradient_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/ops/op_vectors-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

/// Sums the gradients of the table rows chains.rows[begin, end). Sums are Wide<Type>, rounded once.
template <class Type>
void sum_chains(Type type, const EmbeddingGradientArrays& a, const PositionChains& chains, int64_t begin,
                int64_t end) {
  const WideTag<Type> d;
  const WideType<Type> wide;
  std::vector<Wide<Type>> sums(static_cast<size_t>(a.dim));
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = chains.rows[i];
    std::fill(sums.begin(), sums.end(), Wide<Type>(0));
    for (int64_t position = chains.first[row]; position >= 0; position = chains.next[position]) {
      const auto* const grad = static_cast<const BitsOf<Type>*>(a.grad_output) + position * a.dim;
      for_each_vector(d, a.dim, [&](int64_t k, auto span) HWY_ATTR {
        const auto sum = hn::Add(load(d, wide, sums.data() + k, span), load(d, type, grad + k, span));
        store(d, wide, sum, sums.data() + k, span);
      });
    }
    auto* const to = static_cast<BitsOf<Type>*>(a.grad_weight) + row * a.dim;
    for_each_vector(d, a.dim, [&](int64_t k, auto span) HWY_ATTR {
      store(d, type, load(d, wide, sums.data() + k, span), to + k, span);
    });
  }
}

void embedding_gradient_of_target(const EmbeddingGradientArrays& arrays, const PositionChains& chains,
                                  int64_t begin, int64_t end) {
  with_type(arrays.type, [&](auto type) HWY_ATTR { sum_chains(type, arrays, chains, begin, end); });
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(embedding_gradient_of_target);

void embedding_gradient_simd(const EmbeddingGradientArrays& arrays, const PositionChains& chains,
                             int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(embedding_gradient_of_target)(arrays, chains, begin, end);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
