// ds_elastic shows the batch sizes that a config's elasticity section gives.
#include <iostream>

#include <CLI/CLI.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/config/tools/elastic_batch.h"
#include "deepspeed/launcher/program_main.h"

namespace {

using deepspeed::Json;
using namespace deepspeed::config;

void show(const std::string& path, int64_t num_devices) {
  const Json config = ConfigSource(path).read();
  const auto section = config.find("elasticity");
  if (section == config.end() || !section->is_object())
    deepspeed::raise<deepspeed::ConfigError>("elasticity: the config has no such section");
  if (!section->value("enabled", false))
    deepspeed::raise<deepspeed::ConfigError>("elasticity.enabled: got false, expected true");
  const ElasticRules rules = ElasticRules::from_json(*section);
  std::cout << "Elasticity config:\n" << section->dump(4) << "\n";
  const ElasticBatch batch =
      num_devices > 0 ? elastic_batch_of_job(rules, num_devices) : elastic_batch(rules, 0);
  std::cout << "train_batch_size: " << batch.train_batch_size << "\n";
  std::cout << "valid numbers of " << (rules.version == 0.1 ? "devices" : "data-parallel ranks") << ":";
  for (const int64_t count : batch.valid_counts) std::cout << " " << count;
  std::cout << "\n";
  if (num_devices == 0) return;
  std::cout << "train_micro_batch_size_per_gpu of " << num_devices << " devices: " << batch.micro_batch_size
            << "\n";
  std::cout << "gradient_accumulation_steps: "
            << batch.train_batch_size / (batch.micro_batch_size * (num_devices / rules.model_parallel_size))
            << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Shows the batch sizes that the section elasticity of a config chooses.", "ds_elastic"};
  std::string config;
  int64_t num_devices = 0;
  app.add_option("-c,--config", config, "The config")->required();
  app.add_option("-w,--world-size", num_devices, "A number of devices, to see its micro batch size")
      ->check(CLI::NonNegativeNumber);
  if (const auto code = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *code;
  return deepspeed::launcher::exit_of_work("ds_elastic", [&] { show(config, num_devices); });
}
