// fit() makes the loaders, restores a checkpoint, and then repeats workloads: it trains until a period ends or the
// epoch does, reports the means, and does what the ended periods ask for. What is not current at the end, a
// validation or a checkpoint, is made then.
//
// Batches are counted within a workload, as Determined counts them: a period that no workload reaches never ends.
#include "deepspeed/trial/trainer/trainer.h"

#include <algorithm>
#include <fstream>
#include <set>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/json_value.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/trial/runner/job.h"

namespace deepspeed::trial {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "trial_state.json";

fs::path rank_file(const fs::path& folder, int rank) {
  return folder / ("det_state_dict_rank" + std::to_string(rank) + ".pth");
}

/// Returns the names of an object's values.
std::set<std::string> names_of(const Json& metrics) {
  std::set<std::string> names;
  for (const auto& [name, value] : metrics.items()) names.insert(name);
  return names;
}

std::string list_of(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

/// Writes a trial's reports for the search that has started it.
class SearchReporter : public Reporter {
 public:
  SearchReporter(const TrialJob& job, const DeepSpeedTrialContext& context) : job_(job), context_(context) {}

  void report_validation_metrics(int64_t batches, const Json& metrics) override {
    int64_t length = batches;
    if (job_.target_epochs > 0) length = metrics.at("epochs").get<int64_t>();
    if (job_.target_records > 0)
      length =
          std::min(batches * std::get<0>(context_.models().front()->get_batch_info()), job_.target_records);
    const auto metric = metrics.find(job_.metric);
    append_report(job_.reports, {{"length", length},
                                 {"batches", batches},
                                 {"metric", metric == metrics.end() ? Json() : *metric},
                                 {"metrics", metrics}});
  }
  void report_checkpoint(int64_t batches, const std::string& name) override {
    append_report(job_.reports, {{"checkpoint", name}, {"batches", batches}});
  }

 private:
  TrialJob job_;
  const DeepSpeedTrialContext& context_;
};

}  // namespace

Metrics DeepSpeedTrial::evaluate_batch(const DataIterator&, int64_t) {
  raise<UsageError>(
      "the trial has neither evaluate_batch() nor evaluate_full_dataset(), expected one of them");
}

Metrics DeepSpeedTrial::evaluate_full_dataset(const DataIterator&) {
  raise<UsageError>("evaluates_full_dataset() is true, and evaluate_full_dataset() is not there");
}

void DeepSpeedTrial::save(DeepSpeedTrialContext& context, const fs::path& folder) {
  for (size_t i = 0; i < context.models().size(); ++i)
    context.models()[i]->save_checkpoint(folder.string(), {.tag = "model" + std::to_string(i)});
}

void DeepSpeedTrial::load(DeepSpeedTrialContext& context, const fs::path& folder) {
  for (size_t i = 0; i < context.models().size(); ++i)
    context.models()[i]->load_checkpoint(folder.string(), {.tag = "model" + std::to_string(i)});
}

Trainer::Trainer(DeepSpeedTrial& trial, DeepSpeedTrialContext& context, std::shared_ptr<Reporter> reporter)
    : trial_(trial),
      context_(context),
      reporter_(reporter ? std::move(reporter) : std::make_shared<Reporter>()) {}

void Trainer::each(const std::function<void(Callback&)>& call) {
  for (const auto& [name, callback] : callbacks_) call(*callback);
}

Json Trainer::from_chief(Json value) const {
  std::vector<Json> shared = {std::move(value)};
  comm::broadcast_object_list(shared, 0, context_.distributed().group());
  return shared.front();
}

FitOptions Trainer::options_of_search(FitOptions options) {
  const auto& job = context_.job();
  if (!job) return options;
  if (job->target_records > 0) {
    const int64_t records = std::get<0>(context_.models().front()->get_batch_info());
    options.max_length = Batch((job->target_records + records - 1) / records);
  } else {
    options.max_length = job->target_epochs > 0 ? Epoch(job->target_epochs) : Batch(job->target_batches);
  }
  if (job->validation_batches > 0) options.validation_period = Batch(job->validation_batches);
  if (job->checkpoint_batches > 0) options.checkpoint_period = Batch(job->checkpoint_batches);
  options.exact_length = true;
  options.checkpoint_policy = job->checkpoint_policy;
  options.searcher_metric = job->metric;
  options.smaller_is_better = job->smaller_is_better;
  options.latest_checkpoint = job->latest_checkpoint;
  options.checkpoint_dir = job->checkpoint_dir;
  reporter_ = std::make_shared<SearchReporter>(*job, context_);
  return options;
}

void Trainer::fit(const FitOptions& given) {
  if (context_.models().empty()) {
    raise<UsageError>(
        "Must have at least one model engine. This might be caused by not wrapping your model with ",
        "wrap_model_engine()");
  }
  const FitOptions options = options_of_search(given);
  if (!options.max_length) raise<UsageError>("max_length must be defined in local training mode.");
  if (options.max_length->value < 1)
    raise<UsageError>("max_length is ", options.max_length->value, ", expected 1 or more");
  const std::string& policy = options.checkpoint_policy;
  if (policy != "best" && policy != "all" && policy != "none")
    raise<UsageError>("checkpoint_policy is '", policy, "', expected best, all or none");
  callbacks_ = trial_.build_callbacks();
  run(options);
}

void Trainer::run(const FitOptions& options) {
  struct Shutdown {
    Trainer& trainer;
    ~Shutdown() {
      trainer.each([](Callback& callback) { callback.on_trial_shutdown(); });
    }
  };
  each([&](Callback& callback) {
    callback.on_trial_startup(context_.get_initial_batch(), options.latest_checkpoint);
  });
  const Shutdown shutdown{*this};
  fs::path folder = options.latest_checkpoint;
  if (!options.latest_checkpoint.empty()) {
    if (!fs::is_directory(folder)) folder = options.checkpoint_dir / options.latest_checkpoint;
    if (!fs::is_directory(folder))
      raise<UsageError>("latest_checkpoint is '", options.latest_checkpoint,
                        "', which is no folder, nor one in ", options.checkpoint_dir.string());
    load(folder);
  }
  context_.set_initial_batch(state_.batches_trained);
  set_data_loaders(state_.batches_trained);
  each([](Callback& callback) { callback.on_training_start(); });
  if (options.step_zero_validation && state_.batches_trained == 0) validate(options);
  train(options);
}

void Trainer::set_data_loaders(int64_t first_batch) {
  const ModelParallelUnit& mpu = context_.mpu();
  const int rank = mpu.data_parallel_rank, ranks = mpu.data_parallel_world_size;
  const int64_t micro_batches = context_.get_num_micro_batches_per_slot();
  Json lengths = {{"train", nullptr}, {"validation", nullptr}};
  if (mpu.should_build_data_loader) {
    const auto training = trial_.build_training_data_loader();
    validation_loader_ = trial_.build_validation_data_loader();
    for (const auto& loader : {training, validation_loader_}) {
      if (!loader) raise<UsageError>("a trial's data loader is null, expected one of make_data_loader()");
      if (!loader->is_custom() || !context_.checks_data()) continue;
      raise<UsageError>(
          "a data loader is not make_data_loader()'s, so that the reproducibility of its batches is not "
          "known; call ",
          "context.disable_dataset_reproducibility_checks() to disable this check");
    }
    training_data_ =
        training->iterate(rank, ranks, true, first_batch * micro_batches, context_.get_trial_seed());
    lengths["train"] = training->size_of_rank(rank, ranks);
    int64_t validation = validation_loader_->size_of_rank(rank, ranks);
    if (context_.use_pipeline_parallel()) {
      if (validation < micro_batches) {
        raise<UsageError>(
            "Number of train micro batches in validation data loader should not be less than the number of "
            "gradient ",
            "accumulation steps when using pipeline parallelism.");
      }
      if (validation % micro_batches != 0)
        log::warning("[trial] We will compute validation metrics over ", validation % micro_batches,
                     " fewer micro batches on rank ", context_.distributed().rank());
      validation /= micro_batches;
    }
    lengths["validation"] = validation;
  }
  const std::vector<Json> all = comm::all_gather_object(lengths, context_.distributed().group());
  const auto least = [&](const char* key) {
    int64_t found = INT64_MAX, most = 0;
    for (const Json& of_rank : all) {
      if (of_rank[key].is_null()) continue;
      found = std::min(found, of_rank[key].get<int64_t>());
      most = std::max(most, of_rank[key].get<int64_t>());
    }
    if (found < most && context_.is_chief())
      log::warning("[trial] the ", key, " loaders' lengths differ between ranks, from ", found, " to ", most,
                   ": the least counts");
    return found == INT64_MAX ? 0 : found;
  };
  epoch_length_ = least("train") / micro_batches;
  num_validation_batches_ = least("validation");
  if (epoch_length_ < 1)
    raise<UsageError>("the training data makes no batch: an epoch has ", least("train"),
                      " micro batches of a rank, and a batch takes ", micro_batches);
}

int64_t Trainer::left_of(const TrainUnit& length) const {
  return length.value - (length.epochs ? state_.epochs_trained : state_.batches_trained);
}

bool Trainer::stops_now() {
  const bool stops = context_.is_chief() && (reporter_->should_preempt() || context_.get_stop_requested());
  return from_chief(stops).get<bool>();
}

void Trainer::train(const FitOptions& options) {
  const TrainUnit length = options.test_mode ? Batch(1) : *options.max_length;
  std::vector<Boundary> boundaries = {{Step::kTrain, *options.max_length},
                                      {Step::kReport, options.reporting_period}};
  if (options.validation_period) boundaries.push_back({Step::kValidate, *options.validation_period});
  if (options.checkpoint_period) boundaries.push_back({Step::kCheckpoint, *options.checkpoint_period});
  while (left_of(length) > 0) {
    end_workload(train_workload(options, boundaries));
    bool stops = false;
    for (Boundary& boundary : boundaries) {
      if (!boundary.reached) continue;
      boundary.reached = false;
      if (boundary.step == Step::kValidate && state_.last_validation != state_.batches_trained)
        validate(options);
      if (boundary.step == Step::kCheckpoint && state_.last_checkpoint != state_.batches_trained)
        checkpoint(options);
      if (context_.is_chief()) {
        const auto done = static_cast<double>(length.epochs ? state_.epochs_trained : state_.batches_trained);
        reporter_->report_progress(done / static_cast<double>(length.value));
      }
      stops = stops || stops_now();
    }
    if (!stops) continue;
    if (state_.last_checkpoint != state_.batches_trained) checkpoint(options);
    return;
  }
  if (state_.last_validation != state_.batches_trained) validate(options);
  if (state_.last_checkpoint != state_.batches_trained) checkpoint(options);
}

std::vector<Json> Trainer::train_workload(const FitOptions& options, std::vector<Boundary>& boundaries) {
  for (const auto& model : context_.models()) model->train();
  context_.reset_reducers();
  std::vector<Json> metrics;
  for (int64_t batch = 0; batch < epoch_length_; ++batch) {
    if (batch == 0) each([](Callback& callback) { callback.on_training_epoch_start(0); });
    for (Json& of_batch : train_batch(0, batch)) metrics.push_back(std::move(of_batch));
    const int64_t epoch = state_.batches_trained++ / epoch_length_;
    if (state_.batches_trained % epoch_length_ == 0) {
      each([&](Callback& callback) { callback.on_training_epoch_end(epoch); });
      ++state_.epochs_trained;
    }
    bool any = false;
    for (Boundary& boundary : boundaries) {
      const bool ends_epoch = batch == epoch_length_ - 1;
      const bool ends =
          boundary.unit.epochs ? ends_epoch && boundary.unit.ends_at(1) : boundary.unit.ends_at(batch + 1);
      boundary.reached = boundary.reached || ends || (options.test_mode && boundary.step == Step::kTrain);
      any = any || boundary.reached;
    }
    if (any || (options.exact_length && left_of(*options.max_length) <= 0)) break;
  }
  return metrics;
}

std::vector<Json> Trainer::train_batch(int64_t epoch_idx, int64_t batch_idx) {
  std::vector<Json> metrics;
  for (int64_t call = 0; call < context_.calls_per_batch(); ++call) {
    const Metrics of_call = trial_.train_batch(training_data_, epoch_idx, batch_idx);
    if (context_.mpu().should_report_metrics) metrics.push_back(json_of(of_call));
  }
  const bool counts = !context_.use_pipeline_parallel();
  if (counts && context_.models().front()->micro_steps() % context_.get_num_micro_batches_per_slot() != 0)
    raise<UsageError>("did not train for gradient accumulation steps");
  return mean_over_ranks(context_.distributed().group(), metrics);
}

void Trainer::end_workload(const std::vector<Json>& batches) {
  Json averages = mean_over_batches(batches);
  averages.update(context_.reduce_metrics(true));
  averages = from_chief(averages);
  each([&](Callback& callback) { callback.on_training_workload_end(averages, Json(batches)); });
  if (context_.is_chief()) reporter_->report_training_metrics(state_.batches_trained, averages);
}

Json Trainer::evaluate(const FitOptions& options) {
  const ModelParallelUnit& mpu = context_.mpu();
  const DataIterator data =
      validation_loader_ ? validation_loader_->iterate(mpu.data_parallel_rank, mpu.data_parallel_world_size,
                                                       false, 0, context_.get_trial_seed())
                         : DataIterator();
  if (trial_.evaluates_full_dataset())
    return from_chief(context_.is_chief() ? json_of(trial_.evaluate_full_dataset(data)) : Json());
  each([](Callback& callback) { callback.on_validation_epoch_start(); });
  std::vector<Json> batches;
  for (int64_t batch = 0; batch < (options.test_mode ? 1 : num_validation_batches_); ++batch) {
    Json metrics = json_of(trial_.evaluate_batch(data, batch));
    if (!mpu.should_report_metrics) continue;
    if (!batches.empty() && names_of(metrics) != names_of(batches.front())) {
      raise<UsageError>("Validation metric names must match across all batches of data: ",
                        list_of(names_of(batches.front())), " != ", list_of(names_of(metrics)), ".");
    }
    batches.push_back(std::move(metrics));
  }
  each([&](Callback& callback) { callback.on_validation_epoch_end(Json(batches)); });
  return reduce_validation(context_.distributed().group(), batches, trial_.evaluation_reducer());
}

bool Trainer::is_best(const FitOptions& options, const Json& metrics) {
  const auto found = metrics.find(options.searcher_metric);
  if (found == metrics.end()) {
    raise<UsageError>("Search method is configured to use metric '", options.searcher_metric,
                      "' but model definition returned validation metrics [", list_of(names_of(metrics)),
                      "]. The metric used by the search method must be one of the validation metrics "
                      "returned by the model definition.");
  }
  if (!found->is_number())
    raise<UsageError>("Searcher validation metric '", options.searcher_metric,
                      "' returned a non-scalar value: ", found->dump());
  const auto value = found->get<double>();
  const auto& best = state_.best_validation;
  if (best && !(options.smaller_is_better ? value < *best : value > *best)) return false;
  state_.best_validation = value;
  return true;
}

void Trainer::validate(const FitOptions& options) {
  const c10::AutoGradMode no_grad(false);
  context_.reset_reducers();
  for (const auto& model : context_.models()) model->eval();
  each([](Callback& callback) { callback.on_validation_start(); });
  Json metrics = evaluate(options);
  metrics.update(context_.reduce_metrics(false));
  each([&](Callback& callback) { callback.on_validation_end(metrics); });
  state_.last_validation = state_.batches_trained;
  for (const auto& [name, count] :
       {std::pair("batches", state_.batches_trained), std::pair("epochs", state_.epochs_trained)})
    if (!metrics.contains(name)) metrics[name] = count;
  if (context_.is_chief()) reporter_->report_validation_metrics(state_.batches_trained, metrics);
  const bool has_metric = !options.searcher_metric.empty();
  const bool best = has_metric && is_best(options, metrics);
  const bool all = options.checkpoint_policy == "all" || (options.checkpoint_policy == "best" && !has_metric);
  const bool wanted = all || (options.checkpoint_policy == "best" && best);
  if (wanted && state_.last_checkpoint != state_.batches_trained) checkpoint(options);
}

void Trainer::checkpoint(const FitOptions& options) {
  const std::string name = "batch" + std::to_string(state_.batches_trained);
  const fs::path folder = options.checkpoint_dir / name;
  if (context_.is_chief()) fs::create_directories(folder);
  comm::barrier(context_.distributed().group());
  state_.last_checkpoint = state_.batches_trained;
  Json state = {{"callbacks", Json::object()}};
  for (const auto& [key, callback] : callbacks_) state["callbacks"][key] = callback->state_dict();
  each([&](Callback& callback) { callback.on_checkpoint_save_start(state); });
  checkpoint::Dict of_rank;
  of_rank.set("state", checkpoint::value_of_json(state));
  of_rank.set("cpu_rng_state", at::detail::getDefaultCPUGenerator().get_state());
  checkpoint::write_torch_archive(rank_file(folder, context_.distributed().rank()), of_rank);
  trial_.save(context_, folder);
  if (context_.is_chief()) {
    const Json counted = {
        {"trial_id", context_.get_trial_id()},
        {"batches_trained", state_.batches_trained},
        {"epochs_trained", state_.epochs_trained},
        {"last_validation", state_.last_validation},
        {"best_validation", state_.best_validation ? Json(*state_.best_validation) : Json()}};
    std::ofstream out(folder / kStateFile);
    out << counted.dump(2) << "\n";
    if (!out.flush()) raise<IoError>("cannot write ", (folder / kStateFile).string());
  }
  comm::barrier(context_.distributed().group());
  each([&](Callback& callback) { callback.on_checkpoint_write_end(folder); });
  if (context_.is_chief()) reporter_->report_checkpoint(state_.batches_trained, name);
  each([&](Callback& callback) { callback.on_checkpoint_upload_end(name); });
}

void Trainer::load(const fs::path& folder) {
  const fs::path file = rank_file(folder, context_.distributed().rank());
  if (!fs::exists(file))
    raise<CheckpointError>("Failed to load deepspeed checkpoint. There is no ", file.string());
  const checkpoint::Value value = checkpoint::read_torch_archive(file);
  const checkpoint::Dict& of_rank = value.as_dict();
  const Json state = checkpoint::json_of_value(of_rank.at("state"));
  each([&](Callback& callback) { callback.on_checkpoint_load_start(state); });
  trial_.load(context_, folder);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(of_rank.at("cpu_rng_state").as_tensor());
  for (const auto& [key, callback] : callbacks_)
    if (state["callbacks"].contains(key)) callback->load_state_dict(state["callbacks"][key]);
  const Json counted = read_json_file(folder / kStateFile);
  if (counted.value("trial_id", int64_t{-1}) != context_.get_trial_id())
    return;  // another trial's weights alone
  state_.batches_trained = counted.at("batches_trained").get<int64_t>();
  state_.epochs_trained = counted.at("epochs_trained").get<int64_t>();
  state_.last_validation = counted.at("last_validation").get<int64_t>();
  state_.last_checkpoint = state_.batches_trained;
  if (counted.at("best_validation").is_number())
    state_.best_validation = counted["best_validation"].get<double>();
}

}  // namespace deepspeed::trial
