// A channel carries lists of tensors from one stage to another, in one direction and in order. Sends and
// receives run beside the computation: send() returns at once, and what is expected is received from the
// moment on at which expect() was called.
#pragma once

#include <cstddef>
#include <deque>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/pipe/exchange/form.h"
#include "deepspeed/pipe/exchange/sliced_message.h"

namespace deepspeed::pipe {

/// The end of a channel at which lists leave.
class Sender {
 public:
  /// `receiver`: its rank in the group, which no other channel between the two ranks uses in this direction.
  /// `capacity`: lists that may be under way; send() of another one waits for the oldest. `slices`: how the
  /// first tensor of a list is cut, alike at both ends.
  Sender(comm::ProcessGroup group, int receiver, size_t capacity, SlicedMessage slices = {});

  /// Begins to send what is defined of a list. with_form: the receiver does not know its form yet.
  void send(const Tensors& values, bool with_form);
  /// Waits until all that was sent has left.
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

/// The end at which they arrive.
class Receiver {
 public:
  Receiver(comm::ProcessGroup group, int sender, at::Device device, SlicedMessage slices = {});

  /// Begins to receive the next list, of this form.
  void expect(const Form& form);
  /// Says how many lists are expected that receive() has not returned.
  size_t num_expected() const { return under_way_.size(); }
  /// Waits for the oldest list that is expected. The tensors need no gradient.
  Tensors receive();
  /// Waits for the form that precedes the next list. Nothing may be expected.
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
