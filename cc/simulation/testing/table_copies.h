// What programs in a SimulatedJob ask of the servers that have blocks of a table. TableExchange:
// one request, and its end. TableCopies: what worker 0 does about copies that have lost their rows,
// as tf_byteps/tables/refilling.py does it.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/table_request.h"
#include "cc/simulation/testing/program_exchange.h"
#include "cc/worker/worker.h"

namespace byteps {

template <typename T>
void AppendNumber(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T NumberAt(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

inline std::string TableRequestBytes(TableRequest::Kind kind, uint64_t number,
                                     const std::vector<int64_t>& indices,
                                     const std::string& values = "", double rate = 0) {
  std::string bytes;
  AppendNumber(static_cast<uint32_t>(kind), &bytes);
  AppendNumber(uint32_t{0}, &bytes);
  AppendNumber(number, &bytes);
  AppendNumber(static_cast<int64_t>(indices.size()), &bytes);
  AppendNumber(rate, &bytes);
  for (const int64_t index : indices) AppendNumber(index, &bytes);
  return bytes + values;
}

struct TableExchange : ExchangeEnd {
  std::string input, output;

  static std::shared_ptr<TableExchange> Begin(Worker* worker, int block, int copy,
                                              std::string bytes) {
    return Begin(worker, "table/block " + std::to_string(block) + "/copy " + std::to_string(copy),
                 block + copy, std::move(bytes));
  }

  static std::shared_ptr<TableExchange> Begin(Worker* worker, const std::string& name, int home,
                                              std::string bytes) {
    auto begun = std::make_shared<TableExchange>();
    begun->input = std::move(bytes);
    ExchangeRequest request;
    request.tensor.name = name;
    request.tensor.kind = ExchangeKind::kTable;
    request.tensor.dtype = DType::kUInt8;
    request.tensor.shape = {-1};
    request.tensor.home = home;
    request.input = begun->input.data();
    request.gather_rows = static_cast<int64_t>(begun->input.size());
    request.keep_alive = begun;
    request.allocate_output = [raw = begun.get()](const std::vector<int64_t>& all) -> void* {
      uint64_t bytes = 0;
      for (const int64_t each : all) bytes += each;
      raw->output.reserve(1);  // never null
      raw->output.assign(bytes, 'x');
      return raw->output.data();
    };
    request.done = [raw = begun.get()](const Status& status) { raw->Done(status); };
    worker->Enqueue(std::move(request));
    return begun;
  }
};

class TableCopies {
 public:
  explicit TableCopies(int blocks) : whole_on_(2 * blocks, -1) {}

  // The copies that worker 0 knows to lack rows.
  void NoteLost(int block, int copy) { lacking_.insert({block, copy}); }

  // A server is killed. It may be one that has no row which no other server has.
  void OnLose() {
    ++losses_;
    is_known_ = false;
  }
  bool MayLose(int32_t server) const {
    for (size_t i = 0; is_known_ && i < whole_on_.size(); i += 2) {
      const auto is_elsewhere = [&](int32_t where) { return where >= 0 && where != server; };
      if (!is_elsewhere(whole_on_[i]) && !is_elsewhere(whole_on_[i + 1])) return false;
    }
    return is_known_;
  }

  // Looks where the rows are, and copies some. The worker has made so many changes of each block,
  // and makes none meanwhile. Returns how many copies have got all rows now.
  int Step(Worker* worker, const std::vector<uint64_t>& made) {
    const int losses = losses_;
    std::vector<State> states;
    for (size_t i = 0; i < whole_on_.size(); ++i) {
      State state;
      if (!Ask(worker, i, TableRequest::Kind::kState, made, "", {}, &state)) return 0;
      states.push_back(state);
    }
    for (size_t i = 0; i < states.size(); ++i)
      whole_on_[i] = states[i].state == CopyState::kWhole ? states[i].server : -1;
    is_known_ = losses == losses_;
    int filled = 0;
    for (const auto& [block, copy] : std::set<std::pair<int, int>>(lacking_)) {
      const size_t target = 2 * block + copy, source = 2 * block + 1 - copy;
      if (Fill(worker, made, target, source, &states)) ++filled;
      if (states[target].state == CopyState::kWhole) lacking_.erase({block, copy});
    }
    return filled;
  }

 private:
  struct State {
    int32_t server = -1;
    CopyState state = CopyState::kLost;
    uint64_t made = 0, filled = 0;
    std::string spec;
  };

  static uint64_t Made(const std::vector<uint64_t>& made, size_t i) { return made[i / 2]; }

  static bool AskBytes(Worker* worker, size_t i, const std::string& request, std::string* answer) {
    const auto asked =
        TableExchange::Begin(worker, static_cast<int>(i / 2), static_cast<int>(i % 2), request);
    if (!asked->Await().ok()) return false;
    *answer = asked->output;
    return true;
  }

  static bool Ask(Worker* worker, size_t i, TableRequest::Kind kind,
                  const std::vector<uint64_t>& made, const std::string& values,
                  const std::vector<int64_t>& indices, State* state) {
    std::string answer;
    if (!AskBytes(worker, i, TableRequestBytes(kind, Made(made, i), indices, values), &answer))
      return false;
    *state = {NumberAt<int32_t>(answer, 0), static_cast<CopyState>(NumberAt<uint32_t>(answer, 4)),
              NumberAt<uint64_t>(answer, 8), NumberAt<uint64_t>(answer, 24), answer.substr(32)};
    return true;
  }

  // Whether the target has all rows now.
  static bool Fill(Worker* worker, const std::vector<uint64_t>& made, size_t target, size_t source,
                   std::vector<State>* states) {
    State& to = (*states)[target];
    const State& from = (*states)[source];
    if (from.state != CopyState::kWhole || from.server == to.server) return false;
    if (to.state == CopyState::kLost &&
        !Ask(worker, target, TableRequest::Kind::kRefill, made, from.spec, {}, &to))
      return false;
    if (to.state != CopyState::kFilling || to.made != Made(made, target) || from.made != to.made)
      return false;
    std::string most, copied;
    AppendNumber(kPieceBytes, &most);
    const std::vector<int64_t> begin = {static_cast<int64_t>(to.filled)};
    const std::string request =
        TableRequestBytes(TableRequest::Kind::kCopy, Made(made, source), begin, most);
    if (!AskBytes(worker, source, request, &copied)) return false;
    std::vector<int64_t> indices(NumberAt<int64_t>(copied, 8));
    if (!indices.empty()) std::memcpy(indices.data(), &copied[16], indices.size() * 8);
    std::string fill;
    AppendNumber(to.filled, &fill);
    AppendNumber(NumberAt<int64_t>(copied, 0), &fill);
    fill += copied.substr(16 + indices.size() * 8);
    return Ask(worker, target, TableRequest::Kind::kFill, made, fill, indices, &to) &&
           to.state == CopyState::kWhole;
  }

  static constexpr uint64_t kPieceBytes = 24;

  std::vector<int32_t> whole_on_;  // the server of each copy that has all rows, or -1
  std::set<std::pair<int, int>> lacking_;
  int losses_ = 0;
  bool is_known_ = false;
};

}  // namespace byteps
