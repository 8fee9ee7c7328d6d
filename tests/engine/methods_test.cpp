// Every method of DeepSpeed's engine: what it returns or does here, or the error that says why not.

#include <ATen/ops/full_like.h>

#include <gmock/gmock.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/optim/schedules/lr_scheduler_source.h"
#include "deepspeed/zero/gradients/grad_reducer.h"

#include "tests/engine/method_table.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
using testing::kMethodsConfig;
using testing::make_engine;
using testing::MethodRow;
using testing::odd_batch;
using testing::TemporaryFolder;
using testing::TestEngine;
using testing::train_step;

at::Tensor loss_of(TestEngine& engine) {
  const auto [inputs, targets] = odd_batch(0, 4);
  return engine.forward(inputs, targets);
}

at::Tensor weight_of(TestEngine& engine) { return engine.module().named_parameters()["last.weight"]; }

const std::vector<MethodRow> kTraining = {
    {"forward", [](TestEngine& e) { EXPECT_TRUE(loss_of(e).requires_grad()); }},
    {"operator()",
     [](TestEngine& e) {
       const auto [inputs, targets] = odd_batch(0, 4);
       EXPECT_TRUE(e(inputs, targets).equal(loss_of(e)));
     }},
    {"module", [](TestEngine& e) { EXPECT_FALSE(e.module().parameters().empty()); }},
    {"backward",
     [](TestEngine& e) {
       const auto loss = loss_of(e);
       EXPECT_TRUE(e.backward(loss).equal(loss.detach() / 2));
       EXPECT_TRUE(e.backward(loss_of(e), {.scale_wrt_gas = false}).equal(loss.detach()));
       EXPECT_FALSE(e.backward(loss_of(e), {.release_loss = true}).defined());
     }},
    {"scale",
     [](TestEngine& e) {
       const auto loss = loss_of(e);
       EXPECT_TRUE(e.scale(loss).equal(loss));
       EXPECT_ERROR(UsageError, e.backward(e.scale(loss)), "a loss that scale() has scaled",
                    "pass the loss itself, or call backward() on the scaled loss");
       EXPECT_ERROR(UsageError, e.scale(at::Tensor()), "scale() got an undefined tensor");
     }},
    {"finish_backward",
     [](TestEngine& e) {
       loss_of(e).backward();
       e.finish_backward();
       e.set_gradient_accumulation_boundary(true);
       e.step();
       EXPECT_TRUE(e.was_step_applied());
     }},
    {"step",
     [](TestEngine& e) {
       const auto before = weight_of(e).detach().clone();
       train_step(e);
       EXPECT_TRUE(weight_of(e).equal(before));
       for (int i = 0; i < 5; ++i) train_step(e);  // the first two rates of the warm-up are 0
       EXPECT_FALSE(weight_of(e).equal(before));
     }},
    {"micro_steps, global_steps, global_samples, skipped_steps, was_step_applied",
     [](TestEngine& e) {
       train_step(e);
       EXPECT_FALSE(e.was_step_applied());
       train_step(e);
       EXPECT_TRUE(e.was_step_applied());
       EXPECT_EQ(e.micro_steps(), 2);
       EXPECT_EQ(e.global_steps(), 1);
       EXPECT_EQ(e.global_samples(), 8);
       EXPECT_EQ(e.skipped_steps(), 0);
     }},
    {"is_gradient_accumulation_boundary, set_gradient_accumulation_boundary",
     [](TestEngine& e) {
       EXPECT_FALSE(e.is_gradient_accumulation_boundary());
       e.set_gradient_accumulation_boundary(true);
       EXPECT_TRUE(e.is_gradient_accumulation_boundary());
     }},
    {"no_sync",
     [](TestEngine& e) {
       const auto scope = e.no_sync();
       EXPECT_ERROR(UsageError, e.step(),
                    "It is illegal to call Engine.step() inside no_sync context manager");
     }},
    {"coalesce_grad_reduction",
     [](TestEngine& e) {
       const auto scope = e.coalesce_grad_reduction();
       EXPECT_ERROR(UsageError, e.step(), "step() inside coalesce_grad_reduction(): end its scope first");
     }},
    {"zero_grad",
     [](TestEngine& e) {
       e.backward(loss_of(e));
       e.zero_grad();
       EXPECT_FALSE(weight_of(e).grad().defined());
       e.set_gradient_accumulation_boundary(true);
       e.step();
       EXPECT_TRUE(e.was_step_applied()) << "with zeros";
       EXPECT_ERROR(UsageError, e.step(), "step() at an accumulation boundary without any backward()");
     }},
    {"_backward_epilogue",
     [](TestEngine& e) {
       loss_of(e).backward();
       e._backward_epilogue();
       EXPECT_FALSE(e.optimizer()->gradients().is_open());
     }},
    {"allreduce_gradients",
     [](TestEngine& e) {
       e.set_gradient_accumulation_boundary(true);
       e.backward(loss_of(e), {.allreduce_gradients = false});
       e.allreduce_gradients(/*bucket_size=*/100);
       e.step();
       EXPECT_TRUE(e.was_step_applied());
       EXPECT_ERROR(UsageError, e.allreduce_gradients(0), "bucket_size 0, expected at least 1 element");
     }},
    {"train, eval",
     [](TestEngine& e) {
       e.eval();
       EXPECT_FALSE(e.module().is_training());
       e.train();
       EXPECT_TRUE(e.module().is_training());
     }},
    {"get_global_grad_norm after a step",
     [](TestEngine& e) {
       train_step(e);
       train_step(e);
       EXPECT_GT(e.get_global_grad_norm().value_or(0.0), 0.0);
     }},
    {"set_lr",
     [](TestEngine& e) {
       e.set_lr(0.25);
       EXPECT_EQ(e.get_lr(), std::vector<double>{0.25});
     }},
    {"set_train_batch_size",
     [](TestEngine& e) {
       e.set_train_batch_size(16);
       EXPECT_EQ(e.get_batch_info(), std::make_tuple(16, 4, 4));
       EXPECT_ERROR(UsageError, e.set_train_batch_size(5),
                    "set_train_batch_size(5): expected a positive multiple of micro batch 4");
     }},
    {"set_train_micro_batch_size",
     [](TestEngine& e) {
       e.set_train_micro_batch_size(3);
       EXPECT_EQ(e.get_batch_info(), std::make_tuple(6, 3, 2));
       for (const int64_t size : {int64_t{0}, int64_t{-4}, std::numeric_limits<int64_t>::max()}) {
         EXPECT_ERROR(UsageError, e.set_train_micro_batch_size(size),
                      "set_train_micro_batch_size(" + std::to_string(size) + "): expected 1 to ")
             << size;
         EXPECT_ERROR(UsageError, e.set_train_batch_size(size),
                      "set_train_batch_size(" + std::to_string(size) +
                          "): expected a positive multiple of micro batch 3")
             << size;
       }
       EXPECT_EQ(e.get_batch_info(), std::make_tuple(6, 3, 2));
     }},
    {"set_gradient_average",
     [](TestEngine& e) {
       e.set_gradient_average(false);
       EXPECT_FALSE(e.gradient_average());
     }},
    {"memory", [](TestEngine& e) { EXPECT_GT(e.memory().total(), e.memory().parameters); }},
    {"install_preemption_handler",
     [](TestEngine& e) {
       e.install_preemption_handler({.signal = SIGUSR2});
       train_step(e);
       train_step(e);
       EXPECT_FALSE(e.preemption_requested());
     }},
    {"set_lr_scheduler",
     [](TestEngine& e) {
       e.set_lr_scheduler(nullptr);
       EXPECT_EQ(e.lr_scheduler(), nullptr);
     }},
    {"optimizer, lr_scheduler, world, model, seed, local_rank",
     [](TestEngine& e) {
       EXPECT_NE(e.optimizer(), nullptr);
       EXPECT_NE(e.lr_scheduler(), nullptr);
       EXPECT_EQ(e.world().size(), 1);
       EXPECT_FALSE(e.model().parameters.empty());
       EXPECT_EQ(e.seed(), e.seed());
       EXPECT_EQ(e.local_rank(), e.world().local_rank());
     }},
};

const std::vector<MethodRow> kData = {
    {"deepspeed_io",
     [](TestEngine& e) {
       struct Numbers {
         size_t size() const { return 9; }
         at::Tensor get(size_t index) const { return at::full({}, static_cast<double>(index)); }
       };
       const auto loader = e.deepspeed_io(Numbers{}, {.route = "eval"});
       std::vector<double> sums;
       for (auto& batch : *loader) sums.push_back(batch.sum().item<double>());
       EXPECT_EQ(sums, (std::vector<double>{6, 22}));  // dataloader_drop_last
       const auto count = [](const std::vector<at::Tensor>& examples) { return examples.size(); };
       const auto counts = e.deepspeed_io(Numbers{}, {.batch_size = 3, .num_local_io_workers = 2}, count);
       EXPECT_EQ(*counts->begin(), 3U);
       EXPECT_EQ(counts->size(), 3);
       EXPECT_ERROR(UsageError, e.deepspeed_io(Numbers{}, {.route = "test"}),
                    "deepspeed_io(): route 'test', expected \"train\", \"eval\" or \"predict\"");
       e.track_loader(loader->position());
     }},
};

const std::vector<MethodRow> kStates = {
    {"module_state_dict, load_module_state_dict",
     [](TestEngine& e) {
       auto state = e.module_state_dict();
       EXPECT_EQ(e.module_state_dict(/*exclude_frozen_parameters=*/true).size() + 1, state.size());
       for (auto& named : state) named.tensor = at::full_like(named.tensor, 0.5);
       e.load_module_state_dict(state);
       EXPECT_TRUE(weight_of(e).equal(at::full_like(weight_of(e), 0.5)));
       EXPECT_ERROR(UsageError, e.load_module_state_dict({}), "'counter' is missing", "strict = false");
     }},
    {"save_checkpoint, load_checkpoint",
     [](TestEngine& e) {
       const TemporaryFolder folder;
       train_step(e);
       train_step(e);
       e.save_checkpoint(folder.path());
       const auto again = make_engine(kMethodsConfig);
       EXPECT_FALSE(again->load_checkpoint(folder.path()).path.empty());
       EXPECT_EQ(again->global_steps(), 1);
       EXPECT_ERROR(UsageError, e.save_checkpoint(""), "save_checkpoint() needs a directory");
       EXPECT_TRUE(e.load_checkpoint(folder.path() / "nowhere").path.empty());
       size_t num_tensors = 0;
       again->load_checkpoint(folder.path(),
                              {.custom_load_fn = [&](const auto& file) { num_tensors = file.size(); }});
       EXPECT_EQ(num_tensors, e.module_state_dict().size());
     }},
    {"save_16bit_model, save_fp16_model",
     [](TestEngine& e) {
       const TemporaryFolder folder;
       e.save_16bit_model(folder.path());
       e.save_fp16_model(folder.path(), "trained.bin", /*exclude_frozen_parameters=*/true);
       const auto all = checkpoint::read_torch_archive(folder.path() / "pytorch_model.bin");
       const auto trained = checkpoint::read_torch_archive(folder.path() / "trained.bin");
       EXPECT_NE(all.as_dict().find("frozen"), nullptr);
       EXPECT_EQ(trained.as_dict().find("frozen"), nullptr);
       EXPECT_EQ(trained.as_dict().size() + 1, all.as_dict().size());
     }},
};

const std::vector<MethodRow> kOthers = {
    {"compile, is_compiled",
     [](TestEngine& e) {
       EXPECT_FALSE(e.is_compiled());
       e.compile({.backend = "eager"});
       EXPECT_TRUE(e.is_compiled());
       EXPECT_ERROR(NotSupportedError, e.compile({.schedule = Json::array({Json::array({0, "prefetch"})})}),
                    "compile(): schedule", "leave it out");
     }},
    {"empty_partition_cache",
     [](TestEngine& e) {
       e.empty_partition_cache();
       train_step(e);
     }},
    {"destroy",
     [](TestEngine& e) {
       const auto loss = loss_of(e).detach();
       e.destroy();
       EXPECT_TRUE(loss_of(e).detach().equal(loss));
       EXPECT_EQ(e.optimizer(), nullptr);
       EXPECT_ERROR(UsageError, e.step(), "step() after destroy()");
     }},
    {"offload_states, reload_states",
     [](TestEngine& e) {
       e.offload_states();
       EXPECT_ERROR(UsageError, e.offload_states({.device = OffloadDeviceEnum::nvme}), "device: got nvme");
       e.reload_states(/*non_blocking=*/true);
       train_step(e);
     }},
};

TEST(EngineMethods, GiveAResultOrSayWhatIsWrong) {
  for (const auto* table : {&kTraining, &kData, &kStates, &kOthers}) testing::check_each(*table);
}

}  // namespace
}  // namespace deepspeed
