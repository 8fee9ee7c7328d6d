#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/zero/storage/storage_record.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Notes what the outermost operator uses, and fills the storage from a copy meanwhile.
class NotingRecord : public StorageRecord {
 public:
  explicit NotingRecord(at::Tensor values) : values_(std::move(values)) {}

  void begin_use(const std::string& op, bool writes) override {
    if (++uses_ > 1) return;
    noted.push_back((writes ? "writes " : "") + op);
    fill(values_.mutable_data_ptr());
  }
  void end_use() override {
    if (--uses_ == 0) empty();
  }
  std::shared_ptr<StorageRecord> cast(at::ScalarType dtype) override {
    if (!casts) return nullptr;
    last_cast = std::make_shared<NotingRecord>(values_.to(dtype));
    return last_cast;
  }
  void on_storage_lost() noexcept override { ++times_lost; }
  std::string text_where_empty() const override { return "nothing is here"; }

  std::vector<std::string> take() { return std::exchange(noted, {}); }

  std::vector<std::string> noted;
  std::shared_ptr<NotingRecord> last_cast;
  bool casts = false;
  int times_lost = 0;

 private:
  at::Tensor values_;
  int uses_ = 0;
};

struct Armed {
  explicit Armed(at::IntArrayRef sizes, bool requires_grad = true)
      : plain(at::arange(c10::multiply_integers(sizes), at::kFloat).div_(7).view(sizes)),
        tensor(plain.clone().requires_grad_(requires_grad)),
        record(std::make_shared<NotingRecord>(plain.clone())) {
    arm(tensor, record);
  }
  at::Tensor plain;
  at::Tensor tensor;
  std::shared_ptr<NotingRecord> record;
};

TEST(Interception, KeepsIdentitySizesAndAutogradState) {
  at::Tensor param = at::ones({3, 4}).requires_grad_();
  const at::TensorImpl* const before = param.unsafeGetTensorImpl();
  param.mutable_grad() = at::full({3, 4}, 2.0);
  arm(param, std::make_shared<NotingRecord>(at::ones({3, 4})));
  EXPECT_EQ(param.unsafeGetTensorImpl(), before);
  EXPECT_EQ(param.sizes(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(param.numel(), 12);
  EXPECT_EQ(param.storage().nbytes(), 48U);
  EXPECT_TRUE(param.requires_grad() && param.is_leaf() && !param.grad_fn());
  EXPECT_EQ(param.grad()[2][3].item<float>(), 2.0F);
}

TEST(Interception, LeavesOrdinaryTensorsAlone) {
  const at::Tensor plain = at::ones({3});
  EXPECT_FALSE(plain.key_set().has(kInterceptionKey));
  EXPECT_EQ(record_of(plain), nullptr);
  EXPECT_EQ(record_of(at::Tensor()), nullptr);
}

TEST(Interception, MakesDataWholeAroundOperatorsInForwardAndBackward) {
  Armed weight({3, 4}, true);
  const at::Tensor input = at::linspace(-1, 1, 8).view({2, 4});
  const at::Tensor plain = weight.plain.clone().requires_grad_();
  const auto loss = [&](const at::Tensor& w) {
    at::Tensor x = input.clone().requires_grad_();
    const at::Tensor loss = at::mm(x, w.t()).pow(2).sum();
    loss.backward();
    return std::make_pair(loss.detach(), x.grad());
  };
  const auto expected = loss(plain);
  const auto result = loss(weight.tensor);
  EXPECT_TRUE(at::equal(result.first, expected.first));
  EXPECT_TRUE(at::equal(result.second, expected.second));
  EXPECT_TRUE(at::equal(weight.tensor.grad(), plain.grad()));
  EXPECT_FALSE(weight.tensor.grad().key_set().has(kInterceptionKey));
  EXPECT_THAT(weight.record->noted, ElementsAre("aten::mm", "aten::mm"));  // backward needs it once
}

TEST(Interception, ViewsNeedNoDataAndInherit) {
  Armed weight({4, 6}, false);
  const at::Tensor& w = weight.tensor;
  const std::vector<at::Tensor> views = {w.t(),
                                         w.transpose(0, 1),
                                         w.select(0, 1),
                                         w.slice(1, 1, 5, 2),
                                         w.expand({2, 4, 6}),
                                         w.chunk(2)[1],
                                         w.split(2, 1)[2],
                                         w.view({24}),
                                         w.unsqueeze(0),
                                         w.permute({1, 0}),
                                         w.detach(),
                                         w.narrow(0, 1, 2),
                                         w.as_strided({3}, {7}),
                                         w.reshape({2, 12}),
                                         w.diagonal(),
                                         w.flatten(),
                                         w.unbind(0)[3],
                                         w.view_as(at::ones({24})),
                                         at::alias(w)};
  EXPECT_THAT(weight.record->noted, IsEmpty());
  for (const at::Tensor& view : views) {
    EXPECT_EQ(record_of(view), weight.record);
    EXPECT_GT(view.abs().sum().item<float>(), 0.0F);
  }
  EXPECT_EQ(weight.record->take().size(), views.size());
}

TEST(Interception, CopiesThatLookLikeViewsReadTheData) {
  Armed weight({4, 6}, false);
  EXPECT_TRUE(at::equal(weight.tensor.t().reshape({24}), weight.plain.t().reshape({24})));
  EXPECT_TRUE(at::equal(weight.tensor.t().contiguous(), weight.plain.t()));
}

TEST(Interception, OperatorsOnSizesAndTypesReadNothing) {
  Armed weight({4, 6}, true);
  const at::Tensor& w = weight.tensor;
  const std::vector<at::Tensor> made = {at::zeros_like(w), at::empty_like(w), at::full_like(w, 2.0),
                                        w.new_zeros({3}), w.new_empty({2, 2})};
  for (const at::Tensor& tensor : made) EXPECT_FALSE(tensor.key_set().has(kInterceptionKey));
  w.requires_grad_(false);
  EXPECT_EQ(w.size(1), 6);
  EXPECT_THAT(weight.record->noted, IsEmpty());
}

TEST(Interception, FindsTensorsInLists) {
  Armed a({3}, false);
  Armed b({3}, false);
  EXPECT_TRUE(at::equal(at::cat({a.tensor, b.tensor}), at::cat({a.plain, b.plain})));
  Armed index({3}, false);
  const at::Tensor long_index = at::tensor({2, 0}, at::kLong);
  EXPECT_TRUE(at::equal(index.tensor.unsqueeze(0).index({at::Tensor(), long_index}),
                        index.plain.unsqueeze(0).index({at::Tensor(), long_index})));
  EXPECT_THAT(a.record->noted, ElementsAre("aten::cat"));
  EXPECT_THAT(b.record->noted, ElementsAre("aten::cat"));
}

TEST(Interception, TellsWritesFromReads) {
  Armed weight({3}, false);
  at::Tensor other = at::zeros({3});
  weight.tensor.add_(1);
  weight.tensor.copy_(other);
  at::mul_out(weight.tensor, other, other);
  weight.tensor.detach().zero_();
  other.copy_(weight.tensor);
  at::mul_out(other, weight.tensor, weight.tensor);
  EXPECT_THAT(weight.record->noted, ElementsAre("writes aten::add_", "writes aten::copy_", "writes aten::mul",
                                                "writes aten::zero_", "aten::copy_", "aten::mul"));
}

TEST(Interception, RawAccessThrowsWhileThereIsNoData) {
  Armed weight({3, 2}, false);
  EXPECT_ERROR(c10::Error, weight.tensor.const_data_ptr(), "nothing is here");
  EXPECT_ERROR(c10::Error, weight.tensor.data_ptr<float>(), "nothing is here");
  EXPECT_ERROR(c10::Error, weight.tensor.t().mutable_data_ptr(), "nothing is here");
  weight.record->begin_use("a test", false);
  EXPECT_EQ(weight.tensor.const_data_ptr<float>()[5], weight.plain[2][1].item<float>());
  EXPECT_NE(weight.tensor.mutable_data_ptr<float>(), nullptr);
  weight.record->end_use();
  EXPECT_ERROR(c10::Error, weight.tensor.data_ptr<float>(), "nothing is here");
}

TEST(Interception, TheRecordGoesWithTheLastViewOfItsStorage) {
  auto weight = std::make_unique<Armed>(at::IntArrayRef({3, 2}), false);
  const auto record = weight->record;
  at::Tensor view = weight->tensor.t();
  weight.reset();
  EXPECT_EQ(record->times_lost, 0);
  view.reset();
  EXPECT_EQ(record->times_lost, 1);
  EXPECT_EQ(record.use_count(), 1);
}

// A library does this to make a bias as long as a weight that has grown.
TEST(Interception, APadByNothingIsTheTensorAgain) {
  Armed bias({6}, true);
  const at::Tensor data = bias.tensor.variable_data();
  bias.tensor.set_data(at::pad(data, {0, 0}));
  EXPECT_THAT(bias.record->noted, IsEmpty());
  EXPECT_NE(record_of(bias.tensor), nullptr);
  EXPECT_TRUE(at::equal(at::pad(data, {0, 2}).narrow(0, 0, 6), bias.plain));
  EXPECT_EQ(bias.record->take().size(), 1U);
  at::pad(bias.tensor, {0, 0});  // for a trained parameter it is a copy, as without partitions
  EXPECT_EQ(bias.record->take().size(), 1U);
}

TEST(Interception, ASetToItselfIsTheTensorAgain) {
  const Armed weight(at::IntArrayRef{2, 3});
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(weight.tensor.set_(weight.tensor).is_same(weight.tensor));
  weight.tensor.set_(weight.tensor.detach());
  EXPECT_THAT(weight.record->take(), IsEmpty());
  EXPECT_TRUE(at::equal(weight.tensor, weight.plain));
  weight.record->take();
  weight.tensor.set_(weight.tensor.t());  // another shape of itself
  EXPECT_THAT(weight.record->take(), ElementsAre("writes aten::set_"));
}

TEST(Interception, ASparseTensorKeepsACopyOfItsValues) {
  const Armed values(at::IntArrayRef{3});
  const at::Tensor indices = at::arange(3).expand({2, 3});
  const at::Tensor sparse = at::sparse_coo_tensor(indices, values.tensor, {3, 3}).coalesce();
  EXPECT_THAT(values.record->take(), ElementsAre("aten::clone"));
  EXPECT_TRUE(at::equal(sparse.to_dense(), values.plain.diag()));
  at::mm(sparse, at::ones({3, 2})).sum().backward();
  EXPECT_TRUE(at::equal(values.tensor.grad(), at::full({3}, 2.0F)));
}

TEST(Interception, ReplacedDataAreOrdinary) {
  Armed weight({3}, false);
  weight.tensor.set_data(at::ones({3}));
  EXPECT_EQ(record_of(weight.tensor), nullptr);
  EXPECT_EQ(weight.record->times_lost, 1);
  EXPECT_EQ(weight.tensor.sum().item<float>(), 3.0F);
}

TEST(Interception, ACastGivesAnArmedCopyWithoutReadingTheSource) {
  Armed weight({3, 4}, true);
  weight.record->casts = true;
  const at::Tensor copy = weight.tensor.to(at::kBFloat16);
  ASSERT_EQ(record_of(copy), weight.record->last_cast);
  EXPECT_THAT(weight.record->noted, IsEmpty());
  EXPECT_EQ(copy.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(copy.requires_grad() && !copy.is_leaf());
  EXPECT_TRUE(at::equal(copy.detach().clone(), weight.plain.to(at::kBFloat16)));
  copy.sum().backward();
  EXPECT_TRUE(at::equal(weight.tensor.grad(), at::ones({3, 4})));
  EXPECT_THAT(weight.record->noted, IsEmpty());
}

TEST(Interception, ACastOfATransposedTensorGivesAnArmedCopyToo) {
  Armed weight({3, 4}, true);
  weight.record->casts = true;
  const at::Tensor copy = weight.tensor.t().to(at::kBFloat16);
  ASSERT_EQ(record_of(copy), weight.record->last_cast);
  EXPECT_THAT(weight.record->noted, IsEmpty());
  EXPECT_TRUE(at::equal(copy.detach().clone(), weight.plain.t().to(at::kBFloat16)));
}

TEST(Interception, CastsOfPartsAndToIntegersReadTheSource) {
  Armed weight({3, 4}, false);
  weight.record->casts = true;
  EXPECT_EQ(record_of(weight.tensor.select(0, 1).to(at::kHalf)), nullptr);
  EXPECT_EQ(record_of(weight.tensor.to(at::kLong)), nullptr);
  EXPECT_EQ(record_of(weight.tensor.t().narrow(0, 0, 2).to(at::kHalf)), nullptr);
  EXPECT_EQ(weight.record->noted.size(), 3U);
  EXPECT_EQ(weight.record->last_cast, nullptr);
}

TEST(Interception, OperatorsOfSeveralTypesComputeWithWhatTheyCastThemselves) {
  const at::Tensor factors = at::full({3, 4}, 2.0, at::kDouble);
  for (const bool requires_grad : {false, true}) {
    Armed weight({3, 4}, requires_grad);
    weight.record->casts = true;
    EXPECT_TRUE(at::equal((weight.tensor * factors).detach(), weight.plain * factors));
    const c10::InferenceMode inference;
    EXPECT_TRUE(at::equal(weight.tensor * factors, weight.plain * factors));
  }
}

TEST(Interception, AnErrorOfTheRecordLeavesNothingInUse) {
  class Refusing : public NotingRecord {
   public:
    Refusing() : NotingRecord(at::ones({3})) {}
    void begin_use(const std::string&, bool) override { throw std::runtime_error("not now"); }
  };
  Armed first({3}, false);
  const at::Tensor second = at::ones({3});
  arm(second, std::make_shared<Refusing>());
  EXPECT_ERROR(std::runtime_error, at::add(first.tensor, second), "not now");
  EXPECT_THAT(first.record->take(), ElementsAre("aten::add"));
  EXPECT_ERROR(c10::Error, first.tensor.data_ptr<float>(), "nothing is here");  // released again
}

}  // namespace
}  // namespace deepspeed::zero
