#include "deepspeed/pipe/exchange/channel.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

namespace deepspeed::pipe {
namespace {

constexpr int kTags = 1 << 20;  // messages in flight have different tags

int take(int& next_tag) { return std::exchange(next_tag, (next_tag + 1) % kTags); }

// Tensors travel as bytes, which every backend supports for any dtype.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.reshape({-1}).view(at::kByte); }

bool travels(const at::Tensor& value) { return value.defined() && value.numel() > 0; }

// Moves a form's numbers to the group's device, unless the backend takes host memory.
at::Tensor on_device_of(const comm::ProcessGroup& group, const at::Tensor& numbers) {
  return group.device_type() == at::kCPU ? numbers : numbers.to(group.device_type());
}

}  // namespace

Sender::Sender(comm::ProcessGroup group, int receiver, size_t capacity, SlicedMessage slices)
    : group_(std::move(group)), receiver_(receiver), capacity_(capacity), slices_(std::move(slices)) {}

void Sender::send(const Tensors& values, bool with_form) {
  while (under_way_.size() >= capacity_) wait_for_oldest();
  std::vector<Message> messages;
  if (with_form) {
    const at::Tensor numbers = encode(form_of(values));
    start(on_device_of(group_, at::tensor(numbers.numel(), at::kLong)), messages);
    start(on_device_of(group_, numbers), messages);
  }
  bool is_cut = slices_.is_cut();
  for (const at::Tensor& value : values) {
    if (!travels(value)) continue;
    const at::Tensor whole = value.detach().contiguous();
    start(is_cut ? slices_.part_of(whole) : whole, messages);
    is_cut = false;
  }
  under_way_.push_back(std::move(messages));
}

void Sender::start(const at::Tensor& tensor, std::vector<Message>& messages) {
  const at::Tensor bytes = as_bytes(tensor);
  messages.push_back({bytes, group_.start_send(bytes, receiver_, take(next_tag_))});
}

void Sender::wait_for_oldest() {
  for (Message& message : under_way_.front()) message.work.wait();
  under_way_.pop_front();
}

void Sender::wait() {
  while (!under_way_.empty()) wait_for_oldest();
}

Receiver::Receiver(comm::ProcessGroup group, int sender, at::Device device, SlicedMessage slices)
    : group_(std::move(group)), sender_(sender), device_(device), slices_(std::move(slices)) {}

comm::Work Receiver::start(const at::Tensor& tensor) {
  return group_.start_recv(as_bytes(tensor), sender_, take(next_tag_));
}

void Receiver::expect(const Form& form) {
  Expected expected{make_tensors(form, device_), {}, {}};
  bool is_cut = slices_.is_cut();
  for (at::Tensor& value : expected.values) {
    if (!travels(value)) continue;
    if (is_cut) {
      expected.parts = slices_.room_for(value);
      value = slices_.whole_of(expected.parts, value);
      expected.works.push_back(start(slices_.own_place(expected.parts)));
    } else {
      expected.works.push_back(start(value));
    }
    is_cut = false;
  }
  under_way_.push_back(std::move(expected));
}

Tensors Receiver::receive() {
  Expected oldest = std::move(under_way_.front());
  under_way_.pop_front();
  for (comm::Work& work : oldest.works) work.wait();
  if (oldest.parts.defined()) slices_.gather(oldest.parts);
  return std::move(oldest.values);
}

Form Receiver::receive_form() {
  const auto receive_numbers = [&](int64_t count) {
    const at::Tensor numbers = on_device_of(group_, at::empty({count}, at::kLong));
    start(numbers).wait();
    return numbers.cpu();
  };
  const int64_t count = receive_numbers(1).item<int64_t>();
  return decode(receive_numbers(count));
}

}  // namespace deepspeed::pipe
