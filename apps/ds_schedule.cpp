// ds_schedule --stages S --micro_batches M --schedule KIND draws a pipeline schedule and shows its cost. Each
// stage is a row, each step a column.
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "deepspeed/launcher/program_main.h"
#include "deepspeed/pipe/analysis/drawing.h"

int main(int argc, char** argv) {
  CLI::App app("Draws the schedule of a pipeline: F forward, B backward, W the gradients of weights, . idle");
  int stages = 4;
  int micro_batches = 8;
  int model_chunks = 1;
  std::string schedule = "1f1b";
  app.add_option("--stages", stages, "Stages of the pipeline")->capture_default_str();
  app.add_option("--micro_batches", micro_batches, "Micro batches of a batch")->capture_default_str();
  app.add_option("--schedule", schedule, "1f1b, interleaved or zero_bubble, as pipeline.schedule in a config")
      ->capture_default_str();
  app.add_option("--model_chunks", model_chunks, "Parts of the model that a stage of interleaved holds")
      ->capture_default_str();
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  return deepspeed::launcher::exit_of_work("ds_schedule", [&] {
    const auto pipeline = deepspeed::pipe::train_steps(schedule, micro_batches, stages, model_chunks);
    std::cout << deepspeed::pipe::draw(pipeline) << deepspeed::pipe::describe(pipeline);
  });
}
