#include "deepspeed/pipe/analysis/drawing.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "deepspeed/pipe/analysis/figures.h"

namespace deepspeed::pipe {

using enum InstructionKind;

namespace {

std::string label_of(const Instruction& instruction, int model_chunks) {
  const char* letter = instruction.kind == kForwardPass      ? "F"
                       : instruction.kind == kBackwardWeight ? "W"
                                                             : "B";
  std::string label = letter + std::to_string(instruction.micro_batch);
  if (model_chunks > 1) label += static_cast<char>('a' + instruction.model_chunk % 26);
  return label;
}

std::string cell_of(const std::vector<Instruction>& step, int model_chunks) {
  std::string cell;
  for (const auto& instruction : step) {
    if (is_compute(instruction.kind)) cell += label_of(instruction, model_chunks);
  }
  return cell.empty() ? "." : cell;
}

size_t width_of(const std::vector<std::vector<std::string>>& rows) {
  size_t width = 0;
  for (const auto& row : rows) {
    for (const auto& cell : row) width = std::max(width, cell.size());
  }
  return width;
}

}  // namespace

std::string draw(const PipelineSteps& pipeline) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& steps : pipeline.stages) {
    auto& row = rows.emplace_back();
    for (const auto& step : steps) row.push_back(cell_of(step, pipeline.model_chunks));
  }
  const auto width = static_cast<int>(width_of(rows));
  const auto digits = static_cast<int>(std::to_string(rows.size() - 1).size());
  std::ostringstream text;
  for (size_t stage = 0; stage < rows.size(); ++stage) {
    text << "stage " << std::setw(digits) << stage << " |" << std::left;
    for (size_t i = 0; i + 1 < rows[stage].size(); ++i) text << ' ' << std::setw(width) << rows[stage][i];
    text << std::right << ' ' << rows[stage].back() << '\n';
  }
  return text.str();
}

std::string describe(const PipelineSteps& pipeline) {
  const double ideal = ideal_time(pipeline.micro_batches, {});
  std::ostringstream text;
  text << "bubble: " << std::fixed << std::setprecision(1) << 100 * (simulated_time(pipeline) / ideal - 1)
       << " % of the ideal time\nactivations held at most:";
  for (const auto& steps : pipeline.stages) text << ' ' << peak_activations(steps);
  text << (pipeline.model_chunks > 1 ? " micro batches of a chunk\n" : " micro batches\n");
  return text.str();
}

}  // namespace deepspeed::pipe
