// Arrays of several ranks against torch's own arithmetic, on every instruction set.
#include "deepspeed/kernels/combine.h"

#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/kernels/simd_target_guard.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

struct CombineDtype {
  CombineType type;
  at::ScalarType dtype;
};

const std::vector<CombineDtype> kCombineFloats{{CombineType::kFloat32, at::kFloat},
                                               {CombineType::kFloat64, at::kDouble},
                                               {CombineType::kFloat16, at::kHalf},
                                               {CombineType::kBFloat16, at::kBFloat16}};
const std::vector<CombineDtype> kCombineIntegers{{CombineType::kInt8, at::kChar},
                                                 {CombineType::kUint8, at::kByte},
                                                 {CombineType::kInt16, at::kShort},
                                                 {CombineType::kInt32, at::kInt},
                                                 {CombineType::kInt64, at::kLong}};
const std::vector<int64_t> kCombineNumels{1, 7, 31, 32, 33, 64, 1000, 10007};

std::vector<const void*> addresses_of(const std::vector<at::Tensor>& terms) {
  std::vector<const void*> pointers;
  for (const at::Tensor& term : terms) pointers.push_back(term.const_data_ptr());
  return pointers;
}

at::Tensor combined(CombineOp op, CombineType type, const std::vector<at::Tensor>& terms) {
  const at::Tensor result = at::empty_like(terms[0]);
  combine(op, type, result.mutable_data_ptr(), addresses_of(terms), result.numel());
  return result;
}

/// One term after the other, 16-bit types in fp32 and rounded once.
at::Tensor torch_combined(CombineOp op, const std::vector<at::Tensor>& terms) {
  const auto dtype = terms[0].scalar_type();
  const auto wide = dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
  at::Tensor result = terms[0].to(wide, false, true);
  for (size_t i = 1; i < terms.size(); ++i) {
    const at::Tensor term = terms[i].to(wide);
    if (op == CombineOp::kSum || op == CombineOp::kAverage) result = result + term;
    if (op == CombineOp::kProduct) result = result * term;
    if (op == CombineOp::kMin) result = at::minimum(result, term);
    if (op == CombineOp::kMax) result = at::maximum(result, term);
    if (op == CombineOp::kAnd) result = at::bitwise_and(result, term);
    if (op == CombineOp::kOr) result = at::bitwise_or(result, term);
    if (op == CombineOp::kXor) result = at::bitwise_xor(result, term);
  }
  if (op == CombineOp::kAverage) result = result / static_cast<double>(terms.size());
  return result.to(dtype);
}

/// Floats of very different size, or integers over the whole range of the type.
std::vector<at::Tensor> terms_to_combine(int count, int64_t numel, at::ScalarType dtype) {
  std::vector<at::Tensor> terms;
  for (int i = 0; i < count; ++i) {
    terms.push_back(at::isFloatingType(dtype)
                        ? (at::randn({numel}) * at::pow(10.0, at::randint(-3, 4, {numel}))).to(dtype)
                        : at::randint(INT64_MIN, INT64_MAX, {numel}, at::kLong).to(dtype));
  }
  return terms;
}

TEST(Combine, GivesTheBitsOfTorchInTheOrderOfTheTerms) {
  const SimdTargetGuard guard;
  at::manual_seed(3);
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const CombineDtype& of : kCombineFloats) {
      for (const auto op :
           {CombineOp::kSum, CombineOp::kAverage, CombineOp::kProduct, CombineOp::kMin, CombineOp::kMax}) {
        for (const int count : {2, 3, 5}) {
          for (const int64_t numel : kCombineNumels) {
            const auto terms = terms_to_combine(count, numel, of.dtype);
            EXPECT_TRUE(at::equal(combined(op, of.type, terms), torch_combined(op, terms)))
                << target << " " << of.dtype << " op " << int(op) << " of " << count << " x " << numel;
          }
        }
      }
    }
  }
}

TEST(Combine, ScalesASumOnTheWay) {
  const SimdTargetGuard guard;
  at::manual_seed(4);
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const CombineDtype& of : kCombineFloats) {
      for (const int count : {1, 2, 3}) {
        for (const int64_t numel : kCombineNumels) {
          const auto terms = terms_to_combine(count, numel, of.dtype);
          const at::Tensor result = at::empty_like(terms[0]);
          const auto scale = [&](CombineOp op) {
            combine(op, of.type, result.mutable_data_ptr(), addresses_of(terms), numel, Stores::kCached,
                    1.0 / 3);
          };
          if (!can_scale(of.type)) {
            EXPECT_THAT(error_of<UsageError>([&] { scale(CombineOp::kSum); }), HasSubstr("factor"));
            continue;
          }
          scale(CombineOp::kSum);
          const at::Tensor third = at::scalar_tensor(1.0 / 3, of.dtype);
          EXPECT_TRUE(at::equal(result, torch_combined(CombineOp::kSum, terms) * third))
              << target << " " << of.dtype << " " << count << " x " << numel;
          EXPECT_THAT(error_of<UsageError>([&] { scale(CombineOp::kMax); }), HasSubstr("factor"));
        }
      }
    }
  }
}

TEST(Combine, WrapsIntegersAndKnowsTheirBits) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const CombineDtype& of : kCombineIntegers) {
      for (const auto op : {CombineOp::kSum, CombineOp::kProduct, CombineOp::kMin, CombineOp::kMax,
                            CombineOp::kAnd, CombineOp::kOr, CombineOp::kXor}) {
        for (const int64_t numel : kCombineNumels) {
          const auto terms = terms_to_combine(3, numel, of.dtype);
          EXPECT_TRUE(at::equal(combined(op, of.type, terms), torch_combined(op, terms)))
              << target << " " << of.dtype << " op " << int(op) << " x " << numel;
        }
      }
    }
  }
}

TEST(Combine, MayReplaceOneOfTheTerms) {
  for (const CombineDtype& of : kCombineFloats) {
    for (const size_t replaced : {0, 1, 2}) {
      auto terms = terms_to_combine(3, 1003, of.dtype);
      const at::Tensor expected = torch_combined(CombineOp::kSum, terms);
      combine(CombineOp::kSum, of.type, terms[replaced].mutable_data_ptr(), addresses_of(terms), 1003);
      EXPECT_TRUE(at::equal(terms[replaced], expected)) << of.dtype << " " << replaced;
    }
  }
}

TEST(Combine, ReadsAndWritesAtAnyAddress) {
  for (const CombineDtype& of : kCombineFloats) {
    auto terms = terms_to_combine(2, 1001, of.dtype);
    for (at::Tensor& term : terms) term = term.narrow(0, 1, 999);
    const at::Tensor result = at::zeros({1001}, of.dtype);
    combine(CombineOp::kSum, of.type, result.narrow(0, 1, 999).mutable_data_ptr(), addresses_of(terms), 999);
    EXPECT_TRUE(at::equal(result.narrow(0, 1, 999), torch_combined(CombineOp::kSum, terms))) << of.dtype;
    EXPECT_EQ(result[0].item<double>(), 0.0);
    EXPECT_EQ(result[1000].item<double>(), 0.0);
  }
}

TEST(Combine, PassesNansAndInfinitiesOn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const CombineDtype& of : kCombineFloats) {
    for (const auto op :
         {CombineOp::kSum, CombineOp::kAverage, CombineOp::kProduct, CombineOp::kMin, CombineOp::kMax}) {
      const std::vector<at::Tensor> terms{at::tensor({1.0, nan, 2.0, infinity}).to(of.dtype).repeat({10}),
                                          at::tensor({nan, 1.0, 2.0, -infinity}).to(of.dtype).repeat({10})};
      EXPECT_TRUE(at::allclose(combined(op, of.type, terms), torch_combined(op, terms), 0, 0, true))
          << of.dtype << " op " << int(op);
    }
  }
}

TEST(Combine, RefusesWhatAnOperationHasNoMeaningFor) {
  at::Tensor one = at::ones({3});
  EXPECT_ERROR(
      UsageError,
      combine(CombineOp::kXor, CombineType::kFloat32, one.mutable_data_ptr(), addresses_of({one}), 3),
      "a bitwise operation", "expected integers");
  EXPECT_ERROR(
      UsageError,
      combine(CombineOp::kAverage, CombineType::kInt32, one.mutable_data_ptr(), addresses_of({one}), 3),
      "an average of integers", "expected elements of a floating type");
  EXPECT_ERROR(UsageError, combine(CombineOp::kSum, CombineType::kFloat32, one.mutable_data_ptr(), {}, 3),
               "no terms");
}

TEST(Combine, StoresTheSamePastTheCaches) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const CombineDtype& each : kCombineFloats) {
      for (const int64_t numel : kCombineNumels) {
        const std::vector<at::Tensor> terms{at::randn({numel}).to(each.dtype),
                                            at::randn({numel}).to(each.dtype),
                                            at::randn({numel}).to(each.dtype)};
        const at::Tensor expected = combined(CombineOp::kSum, each.type, terms);
        // Vectors begin at some of these places.
        for (int64_t begin = 0; begin < 9; ++begin) {
          const at::Tensor result = at::zeros({numel + 9}, each.dtype).narrow(0, begin, numel);
          combine(CombineOp::kSum, each.type, result.mutable_data_ptr(), addresses_of(terms), numel,
                  Stores::kPastCaches);
          EXPECT_TRUE(at::equal(result, expected))
              << target << " " << each.dtype << " " << numel << " " << begin;
        }
        const at::Tensor own = terms[1].clone();
        combine(CombineOp::kSum, each.type, own.mutable_data_ptr(), addresses_of({terms[0], own, terms[2]}),
                numel, Stores::kPastCaches);
        EXPECT_TRUE(at::equal(own, expected)) << target << " in place";
      }
    }
  }
}

TEST(Copy, CopiesAllAndNothingElsePastTheCaches) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const int64_t bytes : {0, 1, 31, 64, 129, 1000, 100003}) {
      const at::Tensor from = at::randint(1, 127, {bytes + 80}, at::kByte);
      for (const int64_t begin : {0, 1, 5, 32, 63}) {
        const at::Tensor to = at::zeros({bytes + 80}, at::kByte);
        copy(to.mutable_data_ptr<uint8_t>() + begin, from.const_data_ptr<uint8_t>() + 3, size_t(bytes),
             Stores::kPastCaches);
        at::Tensor expected = at::zeros({bytes + 80}, at::kByte);
        expected.narrow(0, begin, bytes).copy_(from.narrow(0, 3, bytes));
        EXPECT_TRUE(at::equal(to, expected)) << target << " " << bytes << " " << begin;
      }
    }
  }
}

}  // namespace
}  // namespace deepspeed::kernels
