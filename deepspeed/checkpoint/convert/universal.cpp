// Writes universal checkpoints. The order of events in convert_to_universal():
//
// 1. Names are checked, and the input is opened and compared with its manifest. The patterns of
//    universal_checkpoint_info are matched. Nothing is written until all of that succeeds.
// 2. A staging folder is created under a lock (begin_tag).
// 3. Threads take one parameter after the other and write one file per state (write_parameters). Each thread
//    opens the input files itself. The first failure stops all threads.
// 4. Common values, the model file and the random streams follow (write_common), then the manifest.
// 5. The folder gets its final name (publish_tag), and `latest_universal` names it. After an error the folder
//    is removed.
#include "deepspeed/checkpoint/convert/universal.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/sources/universal_patterns.h"
#include "deepspeed/checkpoint/sources/universal_source.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/checkpoint/tag/save_mark.h"
#include "deepspeed/checkpoint/tag/tag_content.h"
#include "deepspeed/checkpoint/tag/tag_folder.h"
#include "deepspeed/checkpoint/tag/tag_name.h"

namespace deepspeed::checkpoint {
namespace {

using std::filesystem::path;

/// Makes the path absolute, without a trailing slash, so that it has a name.
path plain_folder(const path& folder) {
  const path whole = std::filesystem::absolute(folder).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

/// Returns the step as a tensor, because torch's Adam does not take a plain number.
at::Tensor step_tensor(int64_t step) { return at::full({}, double(step), at::kFloat); }

std::vector<UniversalMarks> marks_of_all(const UniversalSource& source, bool strict) {
  const Dict file = source.model_file();
  UniversalPatterns patterns(file.at("universal_checkpoint_info"));
  std::vector<UniversalMarks> marks;
  for (const auto& parameter : source.parameters()) marks.push_back(patterns.marks_of(parameter.name));
  for (const std::string& pattern : patterns.unused()) {
    const std::string text =
        message("the pattern '", pattern, "' of universal_checkpoint_info fits no parameter");
    if (strict) raise<CheckpointError>(text, "; without strict this is a warning");
    log::warning(located(text));
  }
  return marks;
}

/// Writes files into a folder and records their checksums.
class UniversalWriter {
 public:
  UniversalWriter(path input, const Folder& staging, int64_t steps, int64_t ranks)
      : input_(std::move(input)),
        staging_(staging),
        folder_(staging.path()),
        mark_{new_save(), "", steps, ranks} {}

  void write(const path& file, const Value& value, const TensorProvider& provide = nullptr) {
    const path inside = file.lexically_relative(folder_);
    const std::string name = inside.generic_string();
    Folder parent = staging_;
    for (const path& part : inside.parent_path()) parent = parent.make(part.string());
    ArchiveContent content = make_archive_content(value, stream_of(provide));
    content.mark = to_text({mark_.save, name, mark_.steps, mark_.ranks});
    AtomicFile written(parent, inside.filename().string());
    FileSums sums = write_archive_content(written, content);
    const std::lock_guard lock(mutex_);
    manifest_.files[name] = std::move(sums);
  }

  void write_parameter(const UniversalSource& source, const UniversalSource::Parameter& parameter,
                       const UniversalMarks& marks) {
    for (const auto& [state, type] : source.states(parameter)) {
      std::vector<int64_t> sizes = parameter.sizes;
      if (marks.rows && !sizes.empty()) sizes[0] = std::min(sizes[0], *marks.rows);
      Dict content = marks.marks;
      content.set("param", at::empty(sizes, at::TensorOptions().dtype(type).device(at::kMeta)));
      write(universal_state_path(folder_, parameter.name, state), content, [&](const at::Tensor&) {
        const at::Tensor whole = source.load(parameter, state);
        return sizes.empty() ? whole : whole.narrow(0, 0, sizes[0]);
      });
    }
    if (source.step(parameter) > 0)
      write(universal_state_path(folder_, parameter.name, kStepState), step_tensor(source.step(parameter)));
  }

  /// Distributes the parameters over threads, each of which opens the input files itself.
  void write_parameters(const std::vector<UniversalMarks>& marks, const UniversalOptions& options) {
    std::atomic<size_t> next = 0;
    std::exception_ptr failure;
    size_t done = 0;
    const auto work = [&] {
      try {
        const UniversalSource source(input_, {.looks_around = false, .trusts = true});
        for (size_t index = next++; index < marks.size(); index = next++) {
          write_parameter(source, source.parameters()[index], marks[index]);
          const std::lock_guard lock(mutex_);
          ++done;
          if (options.progress) options.progress(done, marks.size());
        }
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure) failure = std::current_exception();
        next = marks.size();
      }
    };
    {
      std::vector<std::jthread> others;
      for (int worker = 1; worker < options.num_workers; ++worker) others.emplace_back(work);
      work();
    }
    if (failure) std::rethrow_exception(failure);
  }

  void write_common(const UniversalSource& source) {
    write(universal_optimizer_path(folder_), source.optimizer_state());
    for (size_t stage = 0; stage < source.num_models(); ++stage) {
      write(model_states_path(folder_.parent_path(), folder_.filename(), int(stage)),
            source.model_file(stage),
            [&](const at::Tensor& deferred) { return source.load_of_model(deferred, stage); });
    }
    for (const LayerStatesFile& layer : find_layer_states(input_.parent_path(), input_.filename())) {
      write(folder_ / layer.path.filename(), source.read(layer.path));
    }
    for (const path& file : find_rng_states(input_.parent_path(), input_.filename()))
      write(folder_ / file.filename(), source.read(file));
  }

  void finish() {
    if (const auto zero = staging_.find(universal_zero_folder("").string())) zero->sync();
    write_manifest(staging_, manifest_);
  }

 private:
  path input_;
  const Folder staging_;
  const path folder_;  // for the names of files
  const SaveMark mark_;
  std::mutex mutex_;
  Manifest manifest_;
};

}  // namespace

void convert_to_universal(const path& input_folder, const path& output_folder,
                          const UniversalOptions& options) {
  if (options.num_workers < 1)
    raise<UsageError>("num_workers is ", options.num_workers, ", expected at least 1");
  const path input = plain_folder(input_folder), output = plain_folder(output_folder);
  const path dir = output.parent_path();
  const std::string tag = output.filename();
  require_tag_name(tag);
  require_replaceable(output, /*is_universal_save=*/true);
  require_no_folder(latest_universal_path(dir));
  const UniversalSource source(input);
  const std::vector<UniversalMarks> marks = marks_of_all(source, options.strict);
  const StagingLock lock = begin_tag(dir, tag);
  try {
    source.verify();  // once for all threads
    UniversalWriter writer(input, open_staging(dir, tag), source.global_steps(), source.num_ranks());
    writer.write_parameters(marks, options);
    writer.write_common(source);
    writer.finish();
    publish_tag(dir, tag);
  } catch (...) {
    abandon_tag(dir, tag);
    throw;
  }
  write_latest_universal(dir, tag);
}

}  // namespace deepspeed::checkpoint
