#include "deepspeed/device/graphs/device_graph.h"

#include <exception>

#include <c10/core/DeviceGuard.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/cuda_library.h"
#include "deepspeed/device/graphs/cuda_graphs.h"
#include "deepspeed/device/streams/side_stream.h"

namespace deepspeed::device {
namespace {

thread_local bool captures = false;

const CudaGraphs& cuda_graphs(c10::Device device) {
  const auto* const table = device.is_cuda() ? cuda_table<CudaGraphs>() : nullptr;
  if (table == nullptr) {
    raise<NotSupportedError>("a graph of ", device, " cannot be captured: ",
                             device.is_cuda() ? why_no_cuda() : std::string("only CUDA devices have graphs"));
  }
  return *table;
}

}  // namespace

bool DeviceGraph::is_capturing() { return captures; }

DeviceGraph DeviceGraph::capture(c10::Device device, const SideStream& stream,
                                 const std::function<void()>& work, const DeviceGraph& neighbour) {
  const CudaGraphs& table = cuda_graphs(device);
  const c10::OptionalDeviceGuard guard(device);
  DeviceGraph made;
  made.device_ = device;
  std::exception_ptr error;
  {
    const SideStream::Scope scope = stream.enter();
    made.graph_ = {table.begin(neighbour.graph_.get()), table.free};
    captures = true;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    captures = false;
    try {
      table.end(made.graph_.get());
    } catch (...) {
      if (!error) error = std::current_exception();  // the first error is the cause
    }
  }
  stream.join();
  if (error) std::rethrow_exception(error);
  return made;
}

void DeviceGraph::replay() const {
  if (!graph_) return;
  const c10::OptionalDeviceGuard guard(device_);
  cuda_table<CudaGraphs>()->replay(graph_.get());
}

}  // namespace deepspeed::device
