#include "deepspeed/trial/experiment/hyperparameter.h"

#include <type_traits>

namespace deepspeed::trial {
namespace {

Json json_of_domain(const Hyperparameter& hyperparameter) {
  return std::visit(
      [](const auto& domain) -> Json {
        using Domain = std::decay_t<decltype(domain)>;
        if constexpr (std::is_same_v<Domain, Constant>) {
          return {{"type", "const"}, {"val", domain.value}};
        } else if constexpr (std::is_same_v<Domain, Choice>) {
          return {{"type", "categorical"}, {"vals", domain.values}};
        } else if constexpr (std::is_same_v<Domain, Space>) {
          return {{"type", "nested"}, {"space", json_of(domain)}};
        } else {
          Json json = {{"type", std::is_same_v<Domain, IntRange>      ? "int"
                                : std::is_same_v<Domain, DoubleRange> ? "double"
                                                                      : "log"},
                       {"minval", domain.minimum},
                       {"maxval", domain.maximum}};
          if constexpr (std::is_same_v<Domain, LogRange>) json["base"] = domain.base;
          if (domain.count) json["count"] = *domain.count;
          return json;
        }
      },
      hyperparameter.domain);
}

}  // namespace

Json json_of(const Space& space) {
  Json json = Json::object();
  for (const Hyperparameter& hyperparameter : space)
    json[hyperparameter.name] = json_of_domain(hyperparameter);
  return json;
}

}  // namespace deepspeed::trial
