// A chunk of a row reads its random words from a small array. Plain loops fill the array; the compiler
// vectorises them for each instruction set.
#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/ops/dropout_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/ops/op_vectors-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

constexpr int kPhiloxBlocks = 32;  // computed in parallel
constexpr int64_t kChunkWords = 1024;

/// Writes the random words of kPhiloxBlocks Philox blocks, four per block. `first` is the first block's
/// counter.
HWY_NOINLINE void philox_words(const Philox& philox, uint64_t first, uint32_t* HWY_RESTRICT words) {
  uint32_t c0[kPhiloxBlocks], c1[kPhiloxBlocks], c2[kPhiloxBlocks], c3[kPhiloxBlocks];
  for (int i = 0; i < kPhiloxBlocks; ++i) {
    const uint64_t counter = first + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(counter);
    c1[i] = static_cast<uint32_t>(counter >> 32);
    c2[i] = static_cast<uint32_t>(philox.offset);
    c3[i] = static_cast<uint32_t>(philox.offset >> 32);
  }
  auto key0 = static_cast<uint32_t>(philox.seed), key1 = static_cast<uint32_t>(philox.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int i = 0; i < kPhiloxBlocks; ++i) {
      const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * c0[i];
      const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * c2[i];
      c0[i] = static_cast<uint32_t>(product1 >> 32) ^ c1[i] ^ key0;
      c1[i] = static_cast<uint32_t>(product1);
      c2[i] = static_cast<uint32_t>(product0 >> 32) ^ c3[i] ^ key1;
      c3[i] = static_cast<uint32_t>(product0);
    }
    key0 += kPhiloxWeyl0, key1 += kPhiloxWeyl1;
  }
  for (int i = 0; i < kPhiloxBlocks; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

/// Holds the random words of a chunk of elements.
class ChunkWords {
 public:
  /// Computes the words of `count` <= kChunkWords elements; the first has index `first`.
  HWY_INLINE void make(const Philox& philox, int64_t first, int64_t count) {
    skipped_ = first % 4;
    const auto block = static_cast<uint64_t>(first / 4);
    for (int64_t made = 0; made < skipped_ + count; made += 4 * kPhiloxBlocks) {
      philox_words(philox, block + static_cast<uint64_t>(made / 4), words_ + made);
    }
  }
  HWY_INLINE const uint32_t* from(int64_t i) const { return words_ + skipped_ + i; }

 private:
  int64_t skipped_ = 0;
  uint32_t words_[kChunkWords + 8 * kPhiloxBlocks];  // room for a vector read beyond the end
};

/// Returns `scale` for words above `limit`, otherwise 0.
template <class D>
HWY_INLINE hn::Vec<D> keep_factors(D d, const uint32_t* HWY_RESTRICT words, uint32_t limit,
                                   hn::Vec<D> scale) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const hn::RebindToUnsigned<D> du;
    return hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(hn::LoadU(du, words), hn::Set(du, limit))), scale);
  } else {
    // Words below 2^32 are not negative in the 64-bit lane of a double.
    const hn::RebindToSigned<D> di;
    const auto wide = hn::BitCast(
        di, hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(hn::Rebind<uint32_t, D>(), words)));
    return hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(wide, hn::Set(di, int64_t{limit}))), scale);
  }
}

template <class Type>
void dropout_elements(Type type, const DropoutArrays& a, int64_t begin, int64_t end, Wide<Type>* sums) {
  const WideTag<Type> d;
  const WideType<Type> wide;
  const auto bias = widened<Type>(a.bias, a.parameter_type, a.rows.columns);
  const auto scale = hn::Set(d, static_cast<Wide<Type>>(a.scale));
  const bool draws = a.threshold != 0;
  const auto limit = static_cast<uint32_t>(a.threshold - 1);
  const auto* const input = static_cast<const BitsOf<Type>*>(a.input);
  const auto* const residual = static_cast<const BitsOf<Type>*>(a.residual);
  auto* const output = static_cast<BitsOf<Type>*>(a.output);
  ChunkWords words;
  const auto run_chunk = [&](int64_t first, int64_t column, int64_t count) HWY_ATTR {
    if (draws) words.make(a.philox, first, count);
    for_each_vector(d, count, [&](int64_t i, auto span) HWY_ATTR {
      auto x = load(d, type, input + first + i, span);
      if (!bias.empty()) x = hn::Add(x, load(d, wide, bias.data() + column + i, span));
      if (draws) x = hn::Mul(x, keep_factors(d, words.from(i), limit, scale));
      if (residual != nullptr) x = hn::Add(x, load(d, type, residual + first + i, span));
      store(d, type, x, output + first + i, span);
      if (sums == nullptr) return;
      store(d, wide, hn::Add(load(d, wide, sums + column + i, span), x), sums + column + i, span);
    });
  };
  for_each_row_piece(a.rows.columns, begin, end, [&](int64_t first, int64_t column, int64_t count) HWY_ATTR {
    for (int64_t done = 0; done < count; done += kChunkWords) {
      run_chunk(first + done, column + done, count - done < kChunkWords ? count - done : kChunkWords);
    }
  });
}

void dropout_of_target(const DropoutArrays& arrays, int64_t begin, int64_t end, void* sums) {
  with_type(arrays.type, [&](auto type) HWY_ATTR {
    dropout_elements(type, arrays, begin, end, static_cast<Wide<decltype(type)>*>(sums));
  });
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(dropout_of_target);

void dropout_simd(const DropoutArrays& arrays, int64_t begin, int64_t end, void* sums) {
  HWY_DYNAMIC_DISPATCH(dropout_of_target)(arrays, begin, end, sums);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
