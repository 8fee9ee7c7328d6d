// Runs the operations of a pickle on a stack of graph node numbers.
//
// run() reads one operation after the other until kStop. It tries them by family: numbers and strings,
// containers, stack and memo, calls. An unknown operation is an error that gives its code. Values become
// nodes of a PickleGraph first, because a pickle may fill a container after others hold it. Globals and calls
// go to pickle_calls.cpp, which builds values and never executes anything. At the end the graph becomes a
// Value, within a limit derived from the pickle's size. Every pop checks that the stack holds something above
// its last mark.
#include "deepspeed/checkpoint/pickle/unpickler.h"

#include <bit>
#include <unordered_map>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/names/python2_names.h"
#include "deepspeed/checkpoint/pickle/pickle_bounds.h"
#include "deepspeed/checkpoint/pickle/pickle_bytes.h"
#include "deepspeed/checkpoint/pickle/pickle_opcodes.h"

namespace deepspeed::checkpoint {
namespace {

using Kind = PickleKind;
using Indices = std::vector<uint32_t>;

class Unpickler {
 public:
  // The limit is generous for honest files: a value takes 48 bytes, the shortest operation one.
  Unpickler(std::string_view bytes, const StorageLoader& load)
      : bytes_(bytes), load_(load), graph_((uint64_t{64} << 20) + 64 * uint64_t(bytes.size())) {}

  Value run() {
    for (;;) {
      const auto op = Op(bytes_.number<uint8_t>());
      if (op == Op::kStop) break;
      if (!read_number(op) && !read_text(op) && !read_container(op) && !read_fill(op) && !read_machine(op)) {
        raise<CheckpointError>("an unknown operation (", int(op), ") at byte ", bytes_.position() - 1);
      }
    }
    return graph_.value(pop());
  }

 private:
  // The functions below push node numbers on the stack and pop them.
  void push(uint32_t index) {
    // Outside of a mark, the stack holds the values that enclose the one being read.
    if (marks_.empty() && stack_.size() >= kMaxOpen) refuse_depth();
    stack_.push_back(index);
  }
  void push_mark() {
    if (marks_.size() >= kMaxOpen) refuse_depth();
    marks_.push_back(stack_.size());
  }
  [[noreturn]] void refuse_depth() const {
    raise<CheckpointError>("the pickle is nested deeper than ", kMaxPickleDepth, " levels at byte ",
                           bytes_.position());
  }
  void push_leaf(Value value) { push(graph_.add_leaf(std::move(value))); }
  void require(size_t count) const {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) raise<CheckpointError>("the pickle takes more than it has put");
  }
  uint32_t pop() {
    require(1);
    const uint32_t index = stack_.back();
    stack_.pop_back();
    return index;
  }
  uint32_t top() const {
    require(1);
    return stack_.back();
  }
  Indices pop_many(size_t count) {
    require(count);
    Indices items(stack_.end() - int64_t(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  Indices pop_to_mark() {
    if (marks_.empty()) raise<CheckpointError>("the pickle closes what it has not opened");
    Indices items(stack_.begin() + int64_t(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_container(Kind kind, Indices items = {}) { push(graph_.add_container(kind, std::move(items))); }

  // Each function below runs the operations of one family, and returns false for any other operation.
  bool read_number(Op op) {
    switch (op) {
      case Op::kNone:
        push_leaf(None{});
        return true;
      case Op::kNewTrue:
        push_leaf(true);
        return true;
      case Op::kNewFalse:
        push_leaf(false);
        return true;
      case Op::kBinInt:
        push_leaf(int64_t{bytes_.number<int32_t>()});
        return true;
      case Op::kBinInt1:
        push_leaf(int64_t{bytes_.number<uint8_t>()});
        return true;
      case Op::kBinInt2:
        push_leaf(int64_t{bytes_.number<uint16_t>()});
        return true;
      case Op::kLong1:
        push_integer(bytes_.take(bytes_.number<uint8_t>()));
        return true;
      case Op::kLong4:
        push_integer(bytes_.take(bytes_.number<uint32_t>()));
        return true;
      case Op::kBinFloat:
        push_leaf(std::bit_cast<double>(__builtin_bswap64(bytes_.number<uint64_t>())));
        return true;
      default:
        return false;
    }
  }

  void push_integer(std::string_view part) { push_leaf(Value::integer({part.begin(), part.end()})); }

  bool read_text(Op op) {
    switch (op) {
      case Op::kBinUnicode:
      case Op::kBinString:
        push_leaf(std::string(bytes_.take(bytes_.number<uint32_t>())));
        return true;
      case Op::kShortBinUnicode:
      case Op::kShortBinString:
        push_leaf(std::string(bytes_.take(bytes_.number<uint8_t>())));
        return true;
      case Op::kBinUnicode8:
        push_leaf(std::string(bytes_.take(bytes_.number<uint64_t>())));
        return true;
      case Op::kBinBytes:
        push_bytes(bytes_.take(bytes_.number<uint32_t>()));
        return true;
      case Op::kShortBinBytes:
        push_bytes(bytes_.take(bytes_.number<uint8_t>()));
        return true;
      case Op::kBinBytes8:
        push_bytes(bytes_.take(bytes_.number<uint64_t>()));
        return true;
      case Op::kByteArray8: {
        const std::string_view part = bytes_.take(bytes_.number<uint64_t>());
        push_leaf(ByteArray{{part.begin(), part.end()}});
        return true;
      }
      default:
        return false;
    }
  }
  void push_bytes(std::string_view part) { push_leaf(Value::bytes({part.begin(), part.end()})); }

  bool read_container(Op op) {
    switch (op) {
      case Op::kEmptyList:
        push_container(Kind::kList);
        return true;
      case Op::kEmptyTuple:
        push_container(Kind::kTuple);
        return true;
      case Op::kEmptyDict:
        push_container(Kind::kDict);
        return true;
      case Op::kEmptySet:
        push_container(Kind::kSet);
        return true;
      case Op::kList:
        push_container(Kind::kList, pop_to_mark());
        return true;
      case Op::kTuple:
        push_container(Kind::kTuple, pop_to_mark());
        return true;
      case Op::kFrozenSet:
        push_container(Kind::kFrozenSet, pop_to_mark());
        return true;
      case Op::kDict:
        push_container(Kind::kDict, pairs(pop_to_mark()));
        return true;
      case Op::kTuple1:
        push_container(Kind::kTuple, pop_many(1));
        return true;
      case Op::kTuple2:
        push_container(Kind::kTuple, pop_many(2));
        return true;
      case Op::kTuple3:
        push_container(Kind::kTuple, pop_many(3));
        return true;
      default:
        return false;
    }
  }

  bool read_fill(Op op) {
    switch (op) {
      case Op::kAppend:
        fill(Kind::kList, pop_many(1));
        return true;
      case Op::kAppends:
        fill(Kind::kList, pop_to_mark());
        return true;
      case Op::kAddItems:
        fill(Kind::kSet, pop_to_mark());
        return true;
      case Op::kSetItem:
        fill(Kind::kDict, pairs(pop_many(2)));
        return true;
      case Op::kSetItems:
        fill(Kind::kDict, pairs(pop_to_mark()));
        return true;
      default:
        return false;
    }
  }
  void fill(Kind kind, const Indices& items) {
    const uint32_t target = top();
    const Kind own = graph_.kind(target);
    const bool fits = own == kind || (kind == Kind::kDict && own == Kind::kOrderedDict) ||
                      (kind != Kind::kSet && own == Kind::kObject);
    if (!fits) raise<CheckpointError>("the pickle fills a container of another kind");
    if (items.empty()) return;
    Indices& filled = own != Kind::kObject  ? graph_.items_to_fill(target)
                      : kind == Kind::kDict ? graph_.object(target).pairs
                                            : graph_.object(target).items;
    filled.insert(filled.end(), items.begin(), items.end());
  }
  static Indices pairs(Indices items) {
    if (items.size() % 2 != 0) raise<CheckpointError>("a dict has a key without a value");
    return items;
  }

  bool read_machine(Op op) {
    switch (op) {
      case Op::kProto:
        read_protocol();
        return true;
      case Op::kFrame:
        bytes_.number<uint64_t>();
        return true;
      case Op::kMark:
        push_mark();
        return true;
      case Op::kPop:
        drop(pop());
        return true;
      case Op::kPopMark:
        pop_to_mark();
        return true;
      case Op::kDup:
        push(top());
        return true;
      case Op::kBinGet:
        recall(bytes_.number<uint8_t>());
        return true;
      case Op::kLongBinGet:
        recall(bytes_.number<uint32_t>());
        return true;
      case Op::kBinPut:
        store(bytes_.number<uint8_t>());
        return true;
      case Op::kLongBinPut:
        store(bytes_.number<uint32_t>());
        return true;
      case Op::kMemoize:
        store(uint32_t(memo_.size() + far_memo_.size()));
        return true;
      default:
        return read_call(op);
    }
  }
  /// Throws if a call's result is discarded. Such a call is made for a side effect, which data cannot hold.
  void drop(uint32_t index) const {
    if (graph_.kind(index) == Kind::kObject)
      raise<CheckpointError>("the pickle calls something for its effect; no call is run");
  }
  bool read_call(Op op) {
    switch (op) {
      case Op::kGlobal: {
        std::string module = bytes_.line();
        push_global({std::move(module), bytes_.line()});
        return true;
      }
      case Op::kStackGlobal: {
        const Indices names = pop_many(2);
        push_global({graph_.leaf(names[0]).as_string(), graph_.leaf(names[1]).as_string()});
        return true;
      }
      case Op::kReduce: {
        const Indices call = pop_many(2);
        push(build_call(graph_, call[0], call[1]));
        return true;
      }
      case Op::kNewObj: {
        const Indices call = pop_many(2);
        push(build_new(graph_, call[0], call[1]));
        return true;
      }
      case Op::kNewObjEx: {
        const Indices call = pop_many(3);
        push(build_new(graph_, call[0], call[1], call[2]));
        return true;
      }
      case Op::kBuild: {
        const uint32_t state = pop();
        set_state(graph_, top(), state);
        return true;
      }
      case Op::kBinPersId:
        push(build_storage(graph_, pop(), load_));
        return true;
      default:
        return false;
    }
  }
  void push_global(Global name) {
    constexpr int kFirstOfPython3 = 3;
    push(add_global(graph_, protocol_ < kFirstOfPython3 ? python3_name(std::move(name)) : std::move(name)));
  }
  void read_protocol() {
    protocol_ = bytes_.number<uint8_t>();
    if (protocol_ < 2 || protocol_ > 5) {
      raise<CheckpointError>("pickle protocol ", protocol_, ", expected 2 to 5");
    }
  }
  void store(uint32_t number) {
    if (number < memo_.size()) {
      memo_[number] = top();
    } else if (number == memo_.size()) {
      memo_.push_back(top());
    } else {
      far_memo_[number] = top();
    }
  }
  void recall(uint32_t number) {
    if (number < memo_.size()) return push(memo_[number]);
    const auto found = far_memo_.find(number);
    if (found == far_memo_.end()) raise<CheckpointError>("the pickle refers to what it has not stored");
    push(found->second);
  }

  // A nesting level keeps a few values on the stack, and at most two marks.
  static constexpr size_t kMaxOpen = 8 * kMaxPickleDepth;

  PickleBytes bytes_;
  const StorageLoader& load_;
  PickleGraph graph_;
  int protocol_ = 0;
  Indices stack_;
  std::vector<size_t> marks_;
  Indices memo_;                                     // entries numbered consecutively, as Python does
  std::unordered_map<uint32_t, uint32_t> far_memo_;  // all other entries
};

}  // namespace

Value unpickle(std::string_view bytes, const StorageLoader& load) { return Unpickler(bytes, load).run(); }

}  // namespace deepspeed::checkpoint
