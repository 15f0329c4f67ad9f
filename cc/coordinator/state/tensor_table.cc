#include "cc/coordinator/state/tensor_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "cc/base/members.h"
#include "cc/base/store_rounds.h"
#include "cc/base/table_copies.h"

namespace byteps {
namespace {

// A name with so many shapes is a mistake: a counter or a batch size in the name's place.
constexpr size_t kMaxVariants = 4096;
constexpr size_t kMaxTensors = size_t{1} << 20;
// Every process keeps something for each part.
constexpr uint64_t kMaxPartsOfTensor = uint64_t{1} << 20;
constexpr uint64_t kMaxParts = uint64_t{1} << 22;

// What nobody else has, and what is more than the newest round's.
bool KeepsResults(const TensorDescription& tensor) {
  return tensor.backup_workers > 0 && !tensor.IsQuorumSum();
}

// A store is one for all workers, and for ever. What only gives a name's rounds up (see KeyTable's
// PlaceholderOf) may have been declared before.
bool ExcludesStore(const TensorDescription& known, const TensorDescription& tensor) {
  const auto may_be_placeholder = [](const TensorDescription& each) {
    return each.kind == ExchangeKind::kSum && each.dtype == DType::kUInt8 && !each.average &&
           each.shape == std::vector<int64_t>{1};
  };
  return (known.IsHeldByServers() || tensor.IsHeldByServers()) && !may_be_placeholder(known) &&
         !may_be_placeholder(tensor);
}

}  // namespace

TensorTable::TensorTable(const JobDescription& job)
    : num_workers_(job.num_workers()),
      is_deterministic_(job.options.deterministic),
      is_lost_(job.num_servers(), false),
      placement_(job.worker_hosts, job.server_hosts, job.options.flow.part_bytes) {}

std::vector<TensorTable::Outcome> TensorTable::Declare(
    const std::vector<TensorDescription>& tensors, uint64_t update_id) {
  std::vector<Outcome> outcomes;
  outcomes.reserve(tensors.size());
  for (const TensorDescription& tensor : tensors) outcomes.push_back(FindOrAdd(tensor, update_id));
  // First variants before the others, which follow them.
  PlaceAdded(outcomes, [](const Row& row) { return row.entry.variant == 0; });
  PlaceAdded(outcomes, [](const Row& row) { return row.entry.variant > 0; });
  return outcomes;
}

TensorTable::Outcome TensorTable::FindOrAdd(const TensorDescription& tensor, uint64_t update_id) {
  Outcome outcome;
  outcome.status = tensor.Validate(num_workers_);
  if (outcome.status.ok() && is_deterministic_ && tensor.kind == ExchangeKind::kStore) {
    outcome.status = FailedPrecondition(
        "tensor \"" + tensor.name +
        "\": an asynchronous exchange depends on the order in which workers push, and the job is "
        "deterministic: choose one of them");
  }
  if (!outcome.status.ok()) return outcome;
  const uint64_t key = KeyOfName(tensor.name);
  if (rows_.size() >= kMaxTensors && rows_.count(key) == 0) {
    outcome.status = ResourceExhausted("tensor \"" + tensor.name + "\" is one too many after " +
                                       std::to_string(rows_.size()) +
                                       " others; use the same names again in each step");
    return outcome;
  }
  const auto found = rows_.find(key);
  if (found != rows_.end()) {
    outcome = Find(tensor, &found->second);
    if (outcome.row != nullptr || !outcome.status.ok()) return outcome;
  }
  outcome.status = CheckParts(tensor);
  if (!outcome.status.ok()) return outcome;
  Variants& variants = rows_[key];
  if (variants.empty()) in_order_of_declaration_.push_back(&variants);
  num_parts_ += placement_.NumPartsOf(tensor);
  Row added;
  added.entry.tensor = tensor;
  added.entry.tensor.codec = CodecNow(tensor.codec);
  added.entry.key = key;
  added.entry.variant = static_cast<uint32_t>(variants.size());
  added.update_id = update_id;
  variants.push_back(std::move(added));
  outcome.row = &variants.back();
  outcome.added = true;
  return outcome;
}

// Among those of its key; the row is null if it may be one more of them.
TensorTable::Outcome TensorTable::Find(const TensorDescription& tensor, Variants* variants) {
  Outcome outcome;
  const std::string& known_name = variants->front().entry.tensor.name;
  if (known_name != tensor.name) {
    outcome.status = FailedPrecondition("the names \"" + known_name + "\" and \"" + tensor.name +
                                        "\" have the same 64-bit key; rename one of them");
    return outcome;
  }
  for (Row& known : *variants) {
    if (!known.entry.tensor.SameExchangeAs(tensor)) continue;
    outcome.row = &known;  // the first, also if it has been replaced: Retune tells of the other
    return outcome;
  }
  for (const Row& known : *variants) {
    if (!ExcludesStore(known.entry.tensor, tensor)) continue;
    outcome.status = FailedPrecondition(
        "tensor \"" + tensor.name + "\" is known as " + known.entry.tensor.ToString() +
        " and was given as " + tensor.ToString() +
        ": what servers hold keeps shape, dtype and staleness; use another name");
    return outcome;
  }
  if (variants->size() >= kMaxVariants) {
    outcome.status =
        FailedPrecondition("tensor \"" + tensor.name + "\" has been declared with " +
                           std::to_string(variants->size()) +
                           " different shapes or operations; pad it, or use " + "different names");
  }
  return outcome;
}

Status TensorTable::CheckParts(const TensorDescription& tensor) const {
  const uint64_t parts = placement_.NumPartsOf(tensor);
  if (parts <= kMaxPartsOfTensor && num_parts_ + parts <= kMaxParts) return OkStatus();
  return ResourceExhausted(
      "tensor \"" + tensor.name + "\" (" + tensor.ToString() + ") has " + std::to_string(parts) +
      " parts of " + std::to_string(placement_.PartBytesOf(tensor)) +
      " bytes, and all others have " + std::to_string(num_parts_) + "; a tensor may have " +
      std::to_string(kMaxPartsOfTensor) + ", and all together " + std::to_string(kMaxParts) +
      ". BYTEPS_PARTITION_BYTES sets their length");
}

void TensorTable::PlaceAdded(const std::vector<Outcome>& outcomes, bool (*wanted)(const Row&)) {
  std::vector<Row*> rows;
  std::vector<Placement::Request> requests;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.added || !wanted(*outcome.row)) continue;
    const Row& first = FirstOf(rows_[outcome.row->entry.key]);
    rows.push_back(outcome.row);
    requests.push_back(
        {&outcome.row->entry.tensor, &first == outcome.row ? nullptr : &first.entry});
  }
  if (rows.empty()) return;
  std::vector<std::vector<PartPlacement>> placed = placement_.Place(requests);
  for (size_t i = 0; i < rows.size(); ++i) rows[i]->entry.parts = std::move(placed[i]);
}

std::string TensorTable::CodecNow(const std::string& codec) const {
  return compresses_ && codec == kAutoCodec ? kAutoInt8Codec : codec;
}

bool TensorTable::IsOtherwiseNow(const TableEntry& entry) const {
  // Its parts have values, and workers are in rounds of their own.
  if (entry.tensor.IsHeldByServers()) return false;
  if (CodecNow(entry.tensor.codec) != entry.tensor.codec) return true;
  const std::vector<uint64_t> cut = placement_.Cut(entry.tensor);
  return !std::equal(
      cut.begin(), cut.end(), entry.parts.begin(), entry.parts.end(),
      [](uint64_t count, const PartPlacement& part) { return count == part.element_count; });
}

// Whether so short parts would not be too many. Rows that are replaced stay.
bool TensorTable::MayCutAgain(uint64_t part_bytes) const {
  uint64_t parts = num_parts_;
  for (const auto& [key, variants] : rows_) {
    for (const Row& row : variants) {
      if (!row.replaced) parts += NumParts(row.entry.tensor, part_bytes);
    }
  }
  return parts <= kMaxParts;
}

std::vector<TableEntry> TensorTable::CutAgain(uint64_t part_bytes, bool compresses,
                                              uint64_t update_id) {
  if (part_bytes == 0) part_bytes = placement_.part_bytes();
  if (!MayCutAgain(part_bytes)) return {};
  placement_.LimitParts(part_bytes);
  compresses_ = compresses;
  std::vector<TableEntry> entries;
  // First variants before the others, which follow them.
  for (const bool firsts : {true, false}) {
    std::vector<Row*> rows;
    std::vector<Placement::Request> requests;
    for (Variants* variants : in_order_of_declaration_) {
      const size_t end = firsts ? 1 : variants->size();
      for (size_t i = firsts ? 0 : 1; i < end; ++i) {
        Row& row = (*variants)[i];
        if (row.replaced || row.added_by_cut || !IsOtherwiseNow(row.entry)) continue;
        rows.push_back(AddCutOf(&row, update_id));
        requests.push_back({&rows.back()->entry.tensor,
                            firsts ? nullptr : &FirstOf(*variants).entry,
                            row.entry.parts[0].server});
      }
    }
    std::vector<std::vector<PartPlacement>> placed = placement_.PlaceAgain(requests);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i]->entry.parts = std::move(placed[i]);
      num_parts_ += rows[i]->entry.parts.size();
      entries.push_back(rows[i]->entry);
    }
  }
  return entries;
}

TensorTable::Row* TensorTable::AddCutOf(Row* row, uint64_t update_id) {
  row->replaced = true;
  placement_.Remove(row->entry);
  Variants& variants = rows_[row->entry.key];
  Row added;
  added.entry.tensor = row->entry.tensor;
  added.entry.tensor.codec = CodecNow(row->entry.tensor.codec);
  added.entry.key = row->entry.key;
  added.entry.variant = static_cast<uint32_t>(variants.size());
  added.update_id = update_id;
  added.added_by_cut = true;
  variants.push_back(std::move(added));
  return &variants.back();
}

int32_t TensorTable::NumMembers(uint64_t key) const {
  const auto found = rows_.find(key);
  if (found == rows_.end()) return num_workers_;
  return Members::Of(found->second.front().entry.tensor.name).Count(num_workers_);
}

const TensorTable::Row& TensorTable::row(const TableEntry& entry) const {
  return rows_.at(entry.key)[entry.variant];
}

// With backup workers a server keeps results for those who are behind, which nobody else has; of a
// quorum's sum no more than the newest, which workers have. A store moves if one word has a bit for
// each worker (base/store_rounds.h). A table's rows do not move: another server has them, too.
bool TensorTable::CanLose(int32_t server) const {
  for (const auto& [key, variants] : rows_) {
    for (const Row& row : variants) {
      const auto is_there = [=](const PartPlacement& part) { return part.server == server; };
      const bool has_own =
          KeepsResults(row.entry.tensor) || (row.entry.tensor.kind == ExchangeKind::kStore &&
                                             num_workers_ > kMostWorkersOfMovedStore);
      if (has_own && std::any_of(row.entry.parts.begin(), row.entry.parts.end(), is_there))
        return false;
    }
  }
  return true;
}

void TensorTable::Lose(int32_t server) {
  is_lost_[server] = true;
  placement_.Lose(server);
}

void TensorTable::Return(int32_t server, const std::string& host) {
  is_lost_[server] = false;
  placement_.Return(server, host);
}

bool TensorTable::MustMove(const PartPlacement& part) const {
  return is_lost_[part.server] || part.version > settled_version_;
}

// Rounds are shared by all variants.
bool TensorTable::MayMove(const Variants& variants) {
  return std::none_of(variants.begin(), variants.end(), [](const Row& row) {
    return row.entry.tensor.backup_workers > 0 || row.entry.tensor.IsHeldByServers();
  });
}

std::vector<TableEntry> TensorTable::MoveParts(uint32_t version, bool evens_out) {
  // Variants take turns: those parts that have the same number and owner stay together.
  std::map<std::tuple<uint64_t, uint32_t, int32_t>, Placement::Move> moves;
  std::vector<Placement::Move*> must_move, may_move;
  for (const Variants* variants : in_order_of_declaration_) {
    if (TableIn(*variants) != nullptr) continue;  // MoveTables
    const bool may = evens_out && MayMove(*variants);
    for (const Row& row : *variants) {
      for (uint32_t part = 0; part < row.entry.parts.size(); ++part) {
        const PartPlacement& place = row.entry.parts[part];
        if (!MustMove(place) && (!may || row.replaced)) continue;
        Placement::Move& move = moves[{row.entry.key, part, place.server}];
        if (move.server < 0) (MustMove(place) ? must_move : may_move).push_back(&move);
        move.server = place.server;
        const uint64_t bytes = place.element_count * DTypeSize(row.entry.tensor.dtype);
        move.bytes = std::max(move.bytes, bytes);
      }
    }
  }
  placement_.MoveParts(must_move);
  placement_.EvenOut(may_move);
  std::vector<TableEntry> moved = MoveTables(version, evens_out);
  for (auto& [key, variants] : rows_) {
    for (Row& row : variants) {
      bool has_moved = false;
      for (uint32_t part = 0; part < row.entry.parts.size(); ++part) {
        PartPlacement& place = row.entry.parts[part];
        const auto move = moves.find({key, part, place.server});
        if (move == moves.end() || (move->second.server == place.server && !MustMove(place)))
          continue;
        place.server = move->second.server;
        place.version = version;
        has_moved = true;
      }
      if (has_moved) moved.push_back(row.entry);
    }
  }
  moved_version_ = version;
  return moved;
}

// The two copies of a block are on different servers, if there are two.
std::vector<TableEntry> TensorTable::MoveTables(uint32_t version, bool evens_out) {
  std::vector<TableEntry> moved;
  for (Variants* variants : in_order_of_declaration_) {
    const Row* const table = TableIn(*variants);
    if (table == nullptr) continue;
    const PartPlacement place = table->entry.parts[0];
    const PartPlacement* const other = OtherCopy(*variants);
    const bool is_other_there = other != nullptr && !is_lost_[other->server];
    // One that has moved has no rows there: the other one has them, and stays.
    const bool came_to_other = is_other_there && !MustMove(*other) &&
                               place.server == other->server && place.version > other->version;
    const bool must = MustMove(place);
    if (!must && !(evens_out && came_to_other)) continue;
    const int32_t to = placement_.MoveTableBlock(place.server, is_other_there ? other->server : -1);
    if (to == place.server && !must) continue;
    for (Row& row : *variants) {
      row.entry.parts[0].server = to;
      row.entry.parts[0].version = version;
      moved.push_back(row.entry);
    }
  }
  return moved;
}

// Null: there is none. The others of the name only give its rounds up.
const TensorTable::Row* TensorTable::TableIn(const Variants& variants) {
  for (const Row& row : variants) {
    if (row.entry.tensor.kind == ExchangeKind::kTable) return &row;
  }
  return nullptr;
}

// Where the other copy of a table's block is. Null: there is none.
const PartPlacement* TensorTable::OtherCopy(const Variants& copy) const {
  const std::string name = OtherCopyOf(copy.front().entry.tensor.name);
  const auto found = name.empty() ? rows_.end() : rows_.find(KeyOfName(name));
  if (found == rows_.end() || found->second.front().entry.tensor.name != name) return nullptr;
  const Row* const other = TableIn(found->second);
  return other == nullptr ? nullptr : &other->entry.parts[0];
}

const TensorTable::Row& TensorTable::FirstOf(const Variants& variants) {
  if (!variants[0].replaced) return variants[0];
  return *std::find_if(variants.begin(), variants.end(),
                       [](const Row& row) { return row.added_by_cut; });
}

}  // namespace byteps
