#include "deepspeed/checkpoint/content/parameter_numbers.h"

#include <utility>

namespace deepspeed::checkpoint {

Dict build_parameter_numbers(const ParameterNumbers& numbers) {
  Dict dict;
  for (const auto& [name, by_parameter] : numbers) {
    Dict values;
    for (const auto& [parameter, number] : by_parameter) values.set(parameter, number);
    dict.set(name, std::move(values));
  }
  return dict;
}

ParameterNumbers parse_parameter_numbers(const Value& value) {
  ParameterNumbers numbers;
  for (const auto& [name, values] : value.as_dict().items()) {
    for (const auto& [parameter, number] : values.as_dict().items())
      numbers[name.as_string()][parameter.as_string()] = number.as_double();
  }
  return numbers;
}

}  // namespace deepspeed::checkpoint
