// The source of a pipeline's micro batches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/export.h"
#include "deepspeed/pipe/module/tensor_call.h"

namespace deepspeed::pipe {

/// Holds what the first stage feeds to its first layer, and the last to loss_fn.
struct MicroBatch {
  Tensors inputs;
  Tensors labels;
};

/// Thrown if fewer micro batches are left than a batch needs. All ranks of the engine throw it; none has
/// trained on the batch.
class DEEPSPEED_API EndOfData : public UsageError {
 public:
  EndOfData(const std::string& what, int num_read) : UsageError(what), num_read_(num_read) {}
  /// Returns how many micro batches were left; 0: the data ended between two batches.
  int num_read() const { return num_read_; }

 private:
  int num_read_;
};

namespace data_detail {

template <class T>
concept IsTupleOfTwo = requires(T& batch) {
  requires(std::tuple_size<T>::value == 2);
  std::get<0>(batch);
};
template <class T>
concept IsStructOfTwo =
    !IsTupleOfTwo<T> && visit_detail::HasMembersToTie<T> && visit_detail::kNumMembers<T> == 2;
/// Accepts T with only the members data and target.
template <class T>
concept IsExample = (visit_detail::IsExample<T>::value || visit_detail::RenamesExample<T> ||
                     IsStructOfTwo<T>)&&requires(T& batch) {
  batch.data;
  batch.target;
};
template <class T>
concept IsDereferenced = requires(T& value) {
  static_cast<bool>(value);
  *value;
};

}  // namespace data_detail

/// Returns a batch as inputs and labels. It may be a pair, a tuple of two, a torch::data::Example or a plain
/// struct of two members, inputs first. The two parts are tensors, or lists, tuples or structs of tensors.
template <class Batch>
MicroBatch micro_batch_of(Batch batch) {
  if constexpr (std::is_same_v<Batch, MicroBatch>) {
    return batch;
  } else if constexpr (data_detail::IsExample<Batch>) {
    return {tensors_in(batch.data), tensors_in(batch.target)};
  } else if constexpr (data_detail::IsTupleOfTwo<Batch>) {
    return {tensors_in(std::get<0>(batch)), tensors_in(std::get<1>(batch))};
  } else if constexpr (data_detail::IsStructOfTwo<Batch>) {
    auto [inputs, labels] = visit_detail::tie_members(batch);
    return {tensors_in(inputs), tensors_in(labels)};
  } else {
    constexpr bool has_two_parts = std::is_same_v<Batch, void>;
    static_assert(
        has_two_parts,
        "a batch of a pipeline has two parts, inputs and labels: a std::pair, a std::tuple of two, a "
        "torch::data::Example, a plain struct of two members or a pipe::MicroBatch; what else it has, such "
        "as a mask, goes into a struct or a tuple that is one of the two parts");
    return {};
  }
}

/// Returns micro batches one after the other until there are no more. Copies share the position.
class DataIterator {
 public:
  using Next = std::function<std::optional<MicroBatch>()>;

  DataIterator() = default;
  DataIterator(std::nullptr_t) {}  // NOLINT: for a stage that reads no data
  /// Calls `next` for each micro batch. `next` returns a batch (see micro_batch_of()) or an optional batch;
  /// an empty one ends the data.
  template <class F>
  requires(std::is_invocable_v<F&> && !std::is_same_v<F, DataIterator>)
      DataIterator(F next)  // NOLINT: an iterator is what it returns
      : next_(as_next(std::move(next))) {}

  /// Returns an iterator that reads the batches of a loader (or a container) once. The loader must outlive
  /// the iterator, unless it is a shared_ptr.
  template <class Loader>
  static DataIterator over(Loader& loader) {
    return DataIterator(one_round(&loader, nullptr));
  }
  template <class Loader>
  static DataIterator over(std::shared_ptr<Loader> loader) {
    return DataIterator(one_round(loader.get(), loader));
  }
  /// Returns an iterator that reads the batches of a loader repeatedly.
  template <class Loader>
  static DataIterator repeating(std::shared_ptr<Loader> loader) {
    auto round = std::make_shared<Next>(one_round(loader.get(), loader));
    return DataIterator(Next([loader, round] {
      auto batch = (*round)();
      if (batch) return batch;
      *round = one_round(loader.get(), loader);
      return (*round)();
    }));
  }

  explicit operator bool() const { return next_ != nullptr; }
  std::optional<MicroBatch> next() const { return next_(); }

 private:
  template <class F>
  static Next as_next(F next) {
    if constexpr (std::is_same_v<F, Next>) {
      return next;
    } else {
      return [next = std::move(next)]() mutable -> std::optional<MicroBatch> {
        auto batch = next();
        if constexpr (data_detail::IsDereferenced<decltype(batch)>) {
          if (!batch) return std::nullopt;
          return micro_batch_of(std::move(*batch));
        } else {
          return micro_batch_of(std::move(batch));
        }
      };
    }
  }

  template <class Loader>
  static Next one_round(Loader* loader, std::shared_ptr<void> owner) {
    using Iterator = decltype(loader->begin());
    auto at = std::make_shared<std::optional<Iterator>>();  // empty: not begun
    return [loader, owner = std::move(owner), at]() -> std::optional<MicroBatch> {
      if (!*at) {
        at->emplace(loader->begin());
      } else if (**at != loader->end()) {
        ++**at;
      }
      if (**at == loader->end()) return std::nullopt;
      return micro_batch_of(std::remove_cvref_t<decltype(***at)>(***at));
    };
  }

  Next next_;
};

}  // namespace deepspeed::pipe
