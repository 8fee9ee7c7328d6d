// Remembers the forms of lists that were received or sent, so that a list of a known form travels without it.
#pragma once

#include <map>
#include <tuple>

#include "deepspeed/pipe/exchange/form.h"

namespace deepspeed::pipe {

/// Which list it is: of inputs of this form of the model's first layer (a number that all stages have alike),
/// behind this part of the model, of a forward for training or for evaluation.
struct ListKind {
  int64_t input_form = 0;
  int part = 0;
  bool is_training = true;

  auto operator<=>(const ListKind&) const = default;
};

class KnownForms {
 public:
  /// Returns the form of such a list, or null where none was seen.
  const Form* find(const ListKind& kind) const {
    const auto found = forms_.find(kind);
    return found == forms_.end() ? nullptr : &found->second;
  }
  void add(const ListKind& kind, Form form) { forms_[kind] = std::move(form); }
  void clear() { forms_.clear(); }

 private:
  std::map<ListKind, Form> forms_;
};

}  // namespace deepspeed::pipe
