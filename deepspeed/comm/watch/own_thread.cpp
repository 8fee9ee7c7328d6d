#include "deepspeed/comm/watch/own_thread.h"

namespace deepspeed::comm {
namespace {
thread_local int num_own_threads = 0;
}

OwnThread::OwnThread() { ++num_own_threads; }
OwnThread::~OwnThread() { --num_own_threads; }
bool OwnThread::is_here() { return num_own_threads > 0; }

}  // namespace deepspeed::comm
