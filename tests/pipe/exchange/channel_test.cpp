#include "deepspeed/pipe/exchange/channel.h"

#include <torch/types.h>

#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using pipe::Form;
using pipe::Receiver;
using pipe::Sender;
using pipe::SlicedMessage;
using pipe::Tensors;

// Ranks 0 and 1 are the slices of one stage, 2 and 3 those of the next.
struct Place {
  comm::ProcessGroup stages, slices;
  int slice = 0;
  bool sends = false;
};

Place place_of(const comm::World& world) {
  const int slice = world.rank() % 2, stage = world.rank() / 2;
  return {.stages = world.own_group("stages", "test", {slice, 2 + slice}),
          .slices = world.own_group("slices", "test", {2 * stage, 2 * stage + 1}),
          .slice = slice,
          .sends = stage == 0};
}

// Returns what arrives of `values(slice)`.
Tensors sent(const Place& place, const SlicedMessage& slices, const std::function<Tensors(int)>& values) {
  const Tensors own = values(place.slice);
  if (place.sends) {
    Sender sender(place.stages, 1, 2, slices);
    sender.send(own, /*with_form=*/true);
    sender.wait();
    return own;
  }
  Receiver receiver(place.stages, 0, at::kCPU, slices);
  receiver.expect(receiver.receive_form());
  return receiver.receive();
}

// Slices with different values show which of them each element came from.
TEST(Channel, CarriesTheFirstTensorOfAListInPartsOfWhichEachSliceSendsOne) {
  run_ranks(4, [](comm::World& world) {
    const Place place = place_of(world);
    const auto values = [](int slice) {
      return Tensors{{}, at::full({5, 1}, 1.0 + slice), at::full({3}, 7 + slice, at::kLong)};
    };
    const Tensors cut = sent(place, SlicedMessage(place.slices), values);
    const Tensors whole = sent(place, {}, values);
    if (place.sends) return;
    EXPECT_FALSE(cut[0].defined());
    EXPECT_TRUE(cut[1].equal(at::tensor({1.0, 1.0, 1.0, 2.0, 2.0}, at::kFloat).view({5, 1}))) << cut[1];
    EXPECT_TRUE(cut[2].equal(values(place.slice)[2]));
    EXPECT_TRUE(whole[1].equal(values(place.slice)[1]));
  });
}

TEST(Channel, CarriesTensorsWithFewerElementsThanSlices) {
  run_ranks(4, [](comm::World& world) {
    const Place place = place_of(world);
    for (const int64_t numel : {0, 1, 2, 3}) {
      const auto values = [&](int) { return Tensors{at::arange(numel, at::kBFloat16), at::ones({2})}; };
      const Tensors arrived = sent(place, SlicedMessage(place.slices), values);
      EXPECT_TRUE(arrived[0].equal(values(0)[0])) << numel;
      EXPECT_TRUE(arrived[1].equal(at::ones({2})));
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
