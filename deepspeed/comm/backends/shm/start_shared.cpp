#include "deepspeed/comm/backends/shm/start_shared.h"

namespace deepspeed::comm {
namespace {

using SharedWorkPtr = SharedExchange::WorkPtr;

class StartShared {
 public:
  StartShared(SharedExchange& exchange, uint64_t fingerprint)
      : exchange_(exchange), fingerprint_(fingerprint) {}

  SharedWorkPtr operator()(const operations::AllReduce& call) const {
    return exchange_.all_reduce(call.tensor.detach(), call.op, fingerprint_);
  }
  SharedWorkPtr operator()(const operations::Broadcast& call) const {
    return exchange_.broadcast(call.tensor.detach(), call.root, fingerprint_);
  }
  SharedWorkPtr operator()(const operations::AllGather& call) const {
    return exchange_.all_gather(call.output.detach(), call.input.detach(), fingerprint_);
  }
  SharedWorkPtr operator()(const operations::ReduceScatter& call) const {
    return exchange_.reduce_scatter(call.output.detach(), call.input.detach(), call.op, fingerprint_);
  }
  SharedWorkPtr operator()(const operations::ReduceToOwners& call) const {
    return exchange_.reduce_to_owners(call.tensor.detach(), call.owned, call.own, fingerprint_);
  }
  SharedWorkPtr operator()(const operations::AllToAll& call) const {
    return exchange_.all_to_all(call.output.detach(), call.input.detach(), fingerprint_);
  }
  SharedWorkPtr operator()(const operations::Barrier&) const { return exchange_.barrier(fingerprint_); }
  SharedWorkPtr operator()(const operations::Send& call) const {
    return exchange_.send(call.tensor.detach(), call.destination, call.tag);
  }
  SharedWorkPtr operator()(const operations::Recv& call) const {
    return exchange_.receive(call.tensor.detach(), call.source, call.tag);
  }
  SharedWorkPtr operator()(const operations::MonitoredBarrier&) const { return nullptr; }

 private:
  SharedExchange& exchange_;
  uint64_t fingerprint_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> start_shared(SharedExchange& exchange, const Operation& operation,
                                            uint64_t fingerprint) {
  return std::visit(StartShared(exchange, fingerprint), operation);
}

}  // namespace deepspeed::comm
