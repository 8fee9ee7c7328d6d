#include "deepspeed/optim/slices/hyperparameters_json.h"

#include <utility>
#include <variant>

#include "deepspeed/base/error.h"

namespace deepspeed {
namespace {

struct ToJson {
  Json operator()(const std::pair<double, double>& pair) const {
    return Json::array({pair.first, pair.second});
  }
  template <class T>
  Json operator()(const T& value) const {
    return value;
  }
};

}  // namespace

Json to_json(const optim::Hyperparameters& options) {
  Json json = Json::object();
  for (const auto& [key, value] : options.items()) json[key] = std::visit(ToJson{}, value);
  return json;
}

void set_from_json(optim::Hyperparameters& options, const Json& given, const std::string& where) {
  for (const auto& [key, value] : given.items()) {
    if (value.is_null()) continue;
    if (value.is_boolean()) {
      options.set(key, value.get<bool>());
    } else if (value.is_number_integer() && key != "lr") {
      options.set(key, value.get<int64_t>());
    } else if (value.is_number()) {
      options.set(key, value.get<double>());
    } else if (value.is_string()) {
      options.set(key, value.get<std::string>());
    } else if (value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number()) {
      options.set(key, std::make_pair(value[0].get<double>(), value[1].get<double>()));
    } else {
      raise<UsageError>(where, ".", key, " is ", value.dump(),
                        ", expected a truth value, a number, a text or a pair of numbers");
    }
  }
}

}  // namespace deepspeed
