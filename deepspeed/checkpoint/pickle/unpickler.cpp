// Runs the operations of a pickle on a stack of numbers of graph nodes.
//
// run() reads one operation after the other until kStop. Operations are tried by family: numbers and texts,
// containers, stack and memo, calls; one that no family knows is refused by its code. Values become nodes of
// a PickleGraph rather than Values, since a pickle fills containers after other containers hold them already.
// Globals and calls go to pickle_calls.cpp, which builds and never executes. At the end the graph becomes a
// Value, within a bound that follows from the pickle's size. Every pop checks that the stack, above its last
// mark, has something to give.
#include "deepspeed/checkpoint/pickle/unpickler.h"

#include <bit>
#include <unordered_map>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/names/python2_names.h"
#include "deepspeed/checkpoint/pickle/pickle_bytes.h"
#include "deepspeed/checkpoint/pickle/pickle_opcodes.h"

namespace deepspeed::checkpoint {
namespace {

using Kind = PickleNode::Kind;
using Indices = std::vector<uint32_t>;

class Unpickler {
 public:
  // The bound is generous for honest files, which repeat at most a few small containers.
  Unpickler(std::string_view bytes, const StorageLoader& load)
      : bytes_(bytes), load_(load), graph_((uint64_t{64} << 20) + 256 * uint64_t(bytes.size())) {}

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
  // The functions below move numbers of nodes on and off the stack.
  void push(uint32_t index) { stack_.push_back(index); }
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
  void push_container(Kind kind, Indices items = {}) {
    push(graph_.add({.kind = kind, .items = std::move(items)}));
  }

  // Each function below runs the operations of one family, and returns false for those of another.
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
    PickleNode& target = graph_.at(top());
    const bool fits = target.kind == kind || (kind == Kind::kDict && target.kind == Kind::kOrderedDict) ||
                      (kind != Kind::kSet && target.kind == Kind::kObject);
    if (!fits) raise<CheckpointError>("the pickle fills a container of another kind");
    const bool sets_in_object = kind == Kind::kDict && target.kind == Kind::kObject;
    Indices& filled = sets_in_object ? target.pairs : target.items;
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
        marks_.push_back(stack_.size());
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
        memo_[bytes_.number<uint8_t>()] = top();
        return true;
      case Op::kLongBinPut:
        memo_[bytes_.number<uint32_t>()] = top();
        return true;
      case Op::kMemoize:
        memo_[uint32_t(memo_.size())] = top();
        return true;
      default:
        return read_call(op);
    }
  }
  /// Throws where a call is dropped: it was made for what it changes, which data cannot hold.
  void drop(uint32_t index) const {
    if (graph_.at(index).kind == Kind::kObject)
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
        push_global({graph_.at(names[0]).leaf.as_string(), graph_.at(names[1]).leaf.as_string()});
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
  void recall(uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) raise<CheckpointError>("the pickle refers to what it has not stored");
    push(found->second);
  }

  PickleBytes bytes_;
  const StorageLoader& load_;
  PickleGraph graph_;
  int protocol_ = 0;
  Indices stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, uint32_t> memo_;
};

}  // namespace

Value unpickle(std::string_view bytes, const StorageLoader& load) { return Unpickler(bytes, load).run(); }

}  // namespace deepspeed::checkpoint
