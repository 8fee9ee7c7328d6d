// Carries lists of tensors from one stage to another, in one direction and in order. Sends and receives run
// during the computation: send() returns at once, and a list is received from its expect() call on.
#pragma once

#include <cstddef>
#include <deque>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/pipe/exchange/form.h"
#include "deepspeed/pipe/exchange/sliced_message.h"

namespace deepspeed::pipe {

/// Sends lists of tensors over one channel.
class Sender {
 public:
  /// Makes the sending end. `receiver`: the other end's rank in `group`. No other channel between the two
  /// ranks may use the group in this direction. `capacity`: the most lists in flight; another send() waits
  /// for the oldest. `slices`: how the first tensor of a list is cut; the same at both ends.
  Sender(comm::ProcessGroup group, int receiver, size_t capacity, SlicedMessage slices = {});

  /// Starts sending the defined tensors of a list. With `with_form`, the list's form goes first, for a
  /// receiver that does not know it yet.
  void send(const Tensors& values, bool with_form);
  /// Waits until everything was sent.
  void wait();

 private:
  struct Message {
    at::Tensor bytes;
    comm::Work work;
  };
  void start(const at::Tensor& tensor, std::vector<Message>& messages);
  void wait_for_oldest();

  comm::ProcessGroup group_;
  int receiver_;
  size_t capacity_;
  SlicedMessage slices_;
  int next_tag_ = 0;
  std::deque<std::vector<Message>> under_way_;
};

/// Receives the lists of tensors of one channel.
class Receiver {
 public:
  Receiver(comm::ProcessGroup group, int sender, at::Device device, SlicedMessage slices = {});

  /// Starts receiving the next list, which has this form (shapes and dtypes).
  void expect(const Form& form);
  /// Returns how many expected lists receive() has not returned yet.
  size_t num_expected() const { return under_way_.size(); }
  /// Waits for the oldest expected list and returns it. Its tensors require no gradient.
  Tensors receive();
  /// Waits for the form that Sender::send() puts before the next list. Call it while no list is expected.
  Form receive_form();

 private:
  struct Expected {
    Tensors values;
    std::vector<comm::Work> works;
    at::Tensor parts;  // of the value that arrives in parts; undefined: none does
  };
  comm::Work start(const at::Tensor& tensor);

  comm::ProcessGroup group_;
  int sender_;
  at::Device device_;
  SlicedMessage slices_;
  int next_tag_ = 0;
  std::deque<Expected> under_way_;
};

}  // namespace deepspeed::pipe
