// KeyTable: what a worker knows of each tensor: its descriptions, who sums its parts, which round
// is next and which exchange is in flight. It says what has to be declared to the coordinator, and
// takes in what the coordinator places and cuts again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/status.h"
#include "cc/wire/control.h"
#include "cc/worker/state/exchange.h"
#include "cc/worker/state/part_id.h"
#include "cc/worker/state/residual.h"

namespace byteps {

// Parts of a round that the servers would like to have next, before they are there to be pushed.
class RequestedParts {
 public:
  // Each once. Parts of another round are forgotten.
  void Add(uint64_t round, uint32_t part);
  bool Has(uint64_t round, uint32_t part) const {
    return round == round_ && parts_.count(part) > 0;
  }
  // Whether there are any of this round, or of a later one.
  bool HasSince(uint64_t round) const { return !in_order_.empty() && round_ >= round; }
  // In the order in which they were asked for.
  const std::vector<uint32_t>& Of(uint64_t round) const {
    static const std::vector<uint32_t> kNone;
    return round == round_ ? in_order_ : kNone;
  }

 private:
  uint64_t round_ = 0;
  std::unordered_set<uint32_t> parts_;
  std::vector<uint32_t> in_order_;
};

// Owns the keys, which live as long as the table, and shares their exchanges. Not thread-safe.
// Nothing blocks, and nothing is sent.
class KeyTable {
 public:
  // A known description of a key, see wire/control.h.
  struct Variant {
    TensorDescription tensor;
    std::shared_ptr<const TableEntry> entry;  // null until the coordinator has answered
    // What replaces it from a round on: the tensor, cut again. Null if it stays.
    std::shared_ptr<const TableEntry> new_cut;
    uint64_t first_round_of_new_cut = 0;
    bool is_declared = false;

    // Null until the coordinator has told.
    const std::shared_ptr<const TableEntry>& EntryFor(uint64_t round) const {
      return new_cut != nullptr && round >= first_round_of_new_cut ? new_cut : entry;
    }
  };
  struct Key {
    std::string name;
    std::vector<Variant> variants;
    uint64_t next_round = 0;
    uint64_t training = 0;            // before which nothing begins: Exchanges::Leave
    int32_t number = 0;               // see LearnedOrder; 0: not used yet
    std::shared_ptr<Exchange> live;   // at most one round is outstanding (protocol rule 10)
    bool has_failed = false;          // here, in the round before `next_round`, if that has ended
    uint64_t rounds_with_result = 0;  // so many, up to the last one that has not failed here
    int64_t ended_ns = 0;             // when that was
    bool is_reported = false;         // the coordinator has been told that its result is here
    std::shared_ptr<Exchange> last;   // the one before, while others may lack its result; else null
    std::shared_ptr<Exchange> earlier;         // the same of that before it, of a quorum only
    std::shared_ptr<TensorFeedback> feedback;  // as the last exchange used it; null: it has none
    std::unique_ptr<Residual> restored;        // for the next exchange's; see RenewFeedback
    RequestedParts requested;
    // Rounds that this worker has given up and of which no server has been told: the coordinator
    // has placed nothing under the name yet, or the round before is in flight.
    std::map<uint64_t, Status> withdrawn;

    bool IsStore() const;

    // Of any description, null if none is placed. All have the same owner of a part in common.
    std::shared_ptr<const TableEntry> AnyEntryFor(uint64_t round) const;
  };
  using ByName = std::unordered_map<std::string, std::unique_ptr<Key>>;
  using ById = std::unordered_map<uint64_t, Key*>;

  // `job` outlives it.
  explicit KeyTable(const JobDescription& job) : job_(job) {}

  Key& FindOrAdd(const std::string& name);
  // Null if there is none.
  Key* Find(const std::string& name) const;
  // Null if the coordinator has placed nothing under it.
  Key* FindPlaced(uint64_t id) const;
  const ByName& by_name() const { return by_name_; }
  const ById& placed() const { return placed_; }

  static Variant& FindOrAddVariant(Key& key, const TensorDescription& tensor);

  // Where the part that a frame is of lives now; null if that is not known.
  const PartPlacement* FindPlace(const FrameHeader& header) const;

  // Exchanges that have not ended, the one that waits longest first.
  std::vector<std::shared_ptr<Exchange>> OldestExchanges() const;

  // ---- declarations

  // Adds the description, and has it declared if it is new.
  Variant& Declare(Key& key, const TensorDescription& tensor);
  // Has something placed under the name, of which only rounds are given up, unless that is known or
  // declared already.
  void DeclareAny(Key& key);
  // What DeclareAny declares.
  static TensorDescription PlaceholderOf(const std::string& name);
  // The request that is due, if any. One at a time: what is declared meanwhile goes together in the
  // next.
  std::optional<DeclareRequest> NextRequest();
  // What the answer is to: its results are in the same order.
  Status TakeAnswered(const DeclareReply& reply, std::vector<TensorDescription>* declared);
  void Forget(Key& key, const TensorDescription& tensor);
  Status Place(Key& key, const TensorDescription& tensor, TableEntry entry);
  // Without a coordinator: one part, that of no server.
  void PlaceAlone(Variant* variant);

  // ---- new cuts

  // The round from which on each tensor can be cut again.
  RoundProgress NextRoundsToPlace() const;
  Status CutAgain(NewCut cut);

  // ---- what others ask

  // Pushes over this path that have no answer.
  ResumeQuery UnansweredOn(int32_t server, uint32_t path) const;
  // Tensors that have not been used for some time, and whose last result is here: each once.
  ResultProgress NewIdleResults(int64_t now_ns);

 private:
  const JobDescription& job_;
  ByName by_name_;
  ById placed_;  // those that the coordinator knows
  std::vector<TensorDescription> undeclared_;
  std::vector<TensorDescription> declaring_;  // what declare_request_ asks for
  uint64_t declare_request_ = 0;              // the request that is in flight; 0: none
  uint64_t next_request_ = 1;
};

// The exchange that has ended last.
struct EndedExchange {
  const KeyTable::Key* key = nullptr;  // null: there was none
  uint64_t round = 0;
  int64_t ns = 0;
};

}  // namespace byteps
