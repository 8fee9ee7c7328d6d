// Resumes from a folder, then trains and saves into it in a loop, for scripts that end it at any moment. One
// process a rank; lines on stdout, each in one write:
//   rank <r> <process id>
//   resumed <step> <digest>        what load_checkpoint() found; step 0: nothing
//   saving <tag> <step>
//   saved <tag> <step> <digest>    save_checkpoint() has returned
// The training follows from the step alone, so the digest of a step is the same in every run.
//   crash_saver dir=<folder> [world=1] [stage=1] [tags=new|same] [keep_last=0] [saves=0] [pause_ms=0]
//               [decoupled=0] [ballast=<bytes>] [port=<free port>]
// With decoupled=1 files are written beside the program, which waits for them before it says "saved".
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/checkpoint/file/crc32.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/initialize.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/support/odd_net.h"

namespace {

using namespace deepspeed;

/// Files that take a while to write: a buffer beside the small net.
class HeavyNet : public deepspeed::testing::OddNet {
 public:
  explicit HeavyNet(int64_t bytes) { ballast_ = register_buffer("ballast", at::zeros({bytes / 4})); }
  void load(int64_t step) { ballast_.fill_(double(step)); }

 private:
  at::Tensor ballast_;
};

struct Arguments {
  std::map<std::string, std::string> given;

  std::string text(const std::string& key, const std::string& otherwise = "") const {
    const auto found = given.find(key);
    return found == given.end() ? otherwise : found->second;
  }
  int64_t number(const std::string& key, int64_t otherwise) const {
    return given.count(key) == 0 ? otherwise : std::stoll(text(key));
  }
};

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(STDOUT_FILENO, whole.data(), whole.size()) < 0) ::_exit(3);
}

Json config_of(const Arguments& arguments) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"log_level", "error"},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", {{"stage", arguments.number("stage", 1)}}}};
  if (const int64_t keep_last = arguments.number("keep_last", 0); keep_last > 0)
    config["checkpoint"]["keep_last"] = keep_last;
  if (arguments.number("decoupled", 0) > 0) config["checkpoint"]["writer"]["decoupled"] = true;
  return config;
}

template <class Engine>
std::string digest_of(Engine& engine) {
  uint32_t crc = 0;
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor values = tensor.detach().contiguous();
    crc = checkpoint::crc32(crc, values.const_data_ptr(), values.nbytes());
  };
  for (const at::Tensor& param : engine.module().parameters()) add(param);
  for (const at::Tensor& buffer : engine.module().buffers()) add(buffer);
  add(engine.optimizer()->state().master(0));
  for (const auto& [name, state] : engine.optimizer()->base_optimizer().state(0).tensors) add(state);
  return std::to_string(crc);
}

void train(const Arguments& arguments, int rank) {
  const comm::World world =
      comm::init_distributed({.dist_backend = "gloo", .verbose = false, .timeout = std::chrono::seconds(30)});
  const auto net = std::make_shared<HeavyNet>(arguments.number("ballast", 2 << 20));
  const auto engine = initialize(net, {.config = config_of(arguments), .world = world}).engine;
  say(message("rank ", rank, " ", ::getpid()));
  const std::string dir = arguments.text("dir");
  engine->load_checkpoint(dir);
  if (rank == 0) say(message("resumed ", engine->global_steps(), " ", digest_of(*engine)));
  const int64_t saves = arguments.number("saves", 0);
  for (int64_t save = 0; saves == 0 || save < saves; ++save) {
    const int64_t step = engine->global_steps() + 1;
    const auto [inputs, targets] = deepspeed::testing::odd_batch(100 * step + rank, 4);
    engine->backward(engine->forward(inputs, targets));
    engine->step();
    net->load(step);
    const std::string tag = arguments.text("tags", "new") == "same" ? "same" : checkpoint::default_tag(step);
    if (rank == 0) say(message("saving ", tag, " ", step));
    engine->save_checkpoint(dir, {.tag = tag});
    engine->wait_for_checkpoint();
    if (rank == 0) say(message("saved ", tag, " ", step, " ", digest_of(*engine)));
    std::this_thread::sleep_for(std::chrono::milliseconds(arguments.number("pause_ms", 0)));
  }
}

int run_rank(const Arguments& arguments, int rank) {
  const std::string world = std::to_string(arguments.number("world", 1));
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                          {"LOCAL_RANK", std::to_string(rank)},
                                          {"WORLD_SIZE", world},
                                          {"LOCAL_SIZE", world},
                                          {"MASTER_ADDR", "127.0.0.1"},
                                          {"MASTER_PORT", arguments.text("port", "29511")},
                                          {"DS_ACCELERATOR", "cpu"},
                                          {"OMP_NUM_THREADS", "1"}})
    env::set(name.c_str(), value);
  try {
    train(arguments, rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      std::fprintf(stderr, "expected key=value, got %s\n", argv[i]);
      return 2;
    }
    arguments.given[word.substr(0, equals)] = word.substr(equals + 1);
  }
  at::set_num_threads(1);  // a forked process has no thread pool
  for (int rank = 0; rank < int(arguments.number("world", 1)); ++rank) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int code = run_rank(arguments, rank);
    ::_exit(code);
  }
  int worst = 0;
  for (int status = 0; ::wait(&status) > 0;) worst = std::max(worst, status == 0 ? 0 : 1);
  return worst;
}
