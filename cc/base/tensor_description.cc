#include "cc/base/tensor_description.h"

#include <array>

#include "cc/base/members.h"

namespace byteps {
namespace {

constexpr std::array<const char*, 10> kKindNames = {
    "sum", "min", "max", "broadcast", "gather", "store", "alltoall", "product", "rowsum", "table"};

// Elements of one tensor; far beyond any memory, and far from overflowing a product with an
// element's size.
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr size_t kMaxRank = 254;  // TensorFlow's own limit

bool IsChosenByCoordinator(const std::string& codec) {
  return codec == kAutoCodec || codec == kAutoInt8Codec;
}

// Begins an error's sentence. It is made for errors only: each exchange is validated.
std::string Who(const TensorDescription& tensor) { return "tensor \"" + tensor.name + "\": "; }

Status ValidateShape(const TensorDescription& tensor) {
  if (tensor.shape.size() > kMaxRank)
    return InvalidArgument(Who(tensor) + "has " + std::to_string(tensor.shape.size()) +
                           " dimensions");
  if (tensor.HasOwnRows() && (tensor.shape.empty() || tensor.shape[0] != -1)) {
    return InvalidArgument(
        Who(tensor) + "a" + (tensor.kind == ExchangeKind::kAllToAll ? "n " : " ") +
        ExchangeKindName(tensor.kind) + " needs at least one dimension; got " + tensor.ToString());
  }
  int64_t elements = 1;
  for (size_t i = tensor.HasOwnRows() ? 1 : 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] < 0)
      return InvalidArgument(Who(tensor) + "negative dimension in " + tensor.ToString());
    if (tensor.shape[i] > kMaxElements ||
        (tensor.shape[i] > 0 && elements > kMaxElements / tensor.shape[i])) {
      return InvalidArgument(Who(tensor) + "more than 2^48 elements in " + tensor.ToString());
    }
    elements *= tensor.shape[i];
  }
  if (static_cast<uint64_t>(elements) * DTypeSize(tensor.dtype) > kMaxTensorBytes)
    return InvalidArgument(Who(tensor) + "more than 2^40 bytes in " + tensor.ToString());
  return OkStatus();
}

// Rounds that end without some workers.
Status ValidateEarlyEnds(const TensorDescription& tensor) {
  if (tensor.backup_workers > 0 && tensor.kind == ExchangeKind::kRowSum) {
    return InvalidArgument(Who(tensor) +
                           "rows are added up when all workers have sent theirs: set "
                           "backup_workers to 0, or gather the rows");
  }
  if (tensor.backup_workers < 0 ||
      (tensor.backup_workers > 0 && tensor.kind != ExchangeKind::kSum)) {
    return InvalidArgument(
        Who(tensor) + "only a sum or an average can do without some of the workers; got " +
        tensor.ToString() + " and backup_workers " + std::to_string(tensor.backup_workers));
  }
  if (tensor.grace_ms < kNoGrace ||
      (tensor.grace_ms != kNoGrace && (tensor.kind != ExchangeKind::kSum || tensor.average))) {
    return InvalidArgument(Who(tensor) + "only a sum has a grace window; got " + tensor.ToString() +
                           " and grace_ms " + std::to_string(tensor.grace_ms));
  }
  if (tensor.backup_workers > 0 && tensor.per_host) {
    return InvalidArgument(Who(tensor) +
                           "backup_workers counts workers, but the GPUs of a host contribute "
                           "together: set it to 0, or give each host one worker");
  }
  return OkStatus();
}

}  // namespace

const char* ExchangeKindName(ExchangeKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

bool ParseExchangeKind(const std::string& name, ExchangeKind* kind) {
  for (size_t i = 0; i < kKindNames.size(); ++i) {
    if (name == kKindNames[i]) {
      *kind = static_cast<ExchangeKind>(i);
      return true;
    }
  }
  return false;
}

int64_t TensorDescription::ElementCount() const {
  int64_t count = 1;
  for (size_t i = HasOwnRows() ? 1 : 0; i < shape.size(); ++i) count *= shape[i];
  return count;
}

Status TensorDescription::Validate(int32_t num_workers) const {
  if (name.empty()) return InvalidArgument("a tensor without a name cannot be exchanged");
  if (name.size() > kMaxNameBytes) {
    return InvalidArgument("tensor name of " + std::to_string(name.size()) +
                           " bytes is longer than " + std::to_string(kMaxNameBytes) + ": \"" +
                           name.substr(0, 80) + "...\"");
  }
  BYTEPS_RETURN_IF_ERROR(ValidateShape(*this));
  if (average && kind != ExchangeKind::kSum && kind != ExchangeKind::kRowSum)
    return InvalidArgument(Who(*this) + "only a sum can be averaged");
  if (average && !IsFloating(dtype)) {
    return InvalidArgument(Who(*this) + "the average of " + DTypeName(dtype) +
                           " is not an integer; use op=Sum, or cast to a floating type first");
  }
  if (kind == ExchangeKind::kBroadcast && (root_rank < 0 || root_rank >= num_workers)) {
    return InvalidArgument(Who(*this) + "root_rank " + std::to_string(root_rank) +
                           " is not one of the " + std::to_string(num_workers) + " workers");
  }
  if (per_host && HasOwnRows()) {
    return InvalidArgument(Who(*this) + "a host does not contribute rows for its workers; got " +
                           ToString());
  }
  BYTEPS_RETURN_IF_ERROR(ValidateEarlyEnds(*this));
  BYTEPS_RETURN_IF_ERROR(ValidateMembers(num_workers));
  if (kind != ExchangeKind::kStore && staleness != kUnboundedStaleness)
    return InvalidArgument(Who(*this) + "only a store has a staleness; got " + ToString());
  if (kind == ExchangeKind::kStore) BYTEPS_RETURN_IF_ERROR(ValidateStore());
  if (home < 0 || (kind != ExchangeKind::kTable && home > 0))
    return InvalidArgument(Who(*this) + "only a table has a home; got " + ToString());
  if (kind == ExchangeKind::kTable && (dtype != DType::kUInt8 || shape.size() != 1))
    return InvalidArgument(Who(*this) + "requests to a table are bytes; got " + ToString());
  const bool is_of_rows = kind == ExchangeKind::kGather && dtype == DType::kUInt8;
  if (codec.empty() || is_of_rows) return OkStatus();
  if (kind != ExchangeKind::kSum || dtype != DType::kFloat32) {
    return InvalidArgument(Who(*this) + "compression \"" + codec +
                           "\" is for sums and averages of float32, got " + ToString() +
                           ": exchange it without compression, or cast it");
  }
  return OkStatus();
}

Status TensorDescription::ValidateMembers(int32_t num_workers) const {
  const Status checked = Members::Check(name, num_workers);
  if (!checked.ok()) return Status(checked.code(), Who(*this) + checked.message());
  const Members members = Members::Of(name);
  if (members.are_all()) return OkStatus();
  if (kind == ExchangeKind::kBroadcast && !members.Contain(root_rank)) {
    return InvalidArgument(Who(*this) + "root_rank " + std::to_string(root_rank) +
                           " is not in the process set");
  }
  if (IsHeldByServers() || backup_workers > 0 || grace_ms != kNoGrace) {
    return InvalidArgument(
        Who(*this) + "the rounds of a process set wait for all of its workers; got " + ToString());
  }
  if (!per_host) return OkStatus();
  return InvalidArgument(Who(*this) +
                         "the GPUs of a host contribute together, and a process set may have some "
                         "of them only: exchange it from the CPU");
}

Status TensorDescription::ValidateStore() const {
  if (staleness < kUnboundedStaleness)
    return InvalidArgument(Who(*this) + "a staleness of " + std::to_string(staleness));
  if (AccumulatorDType(dtype) != dtype) {
    return InvalidArgument(Who(*this) + "a store of " + DTypeName(dtype) +
                           " would round small changes away; keep the weights in float32");
  }
  if (!per_host) return OkStatus();
  return InvalidArgument(Who(*this) +
                         "an asynchronous exchange is each worker's own, but the GPUs of a host "
                         "contribute together: exchange it from the CPU");
}

std::string TensorDescription::ToString() const {
  std::string text = DTypeName(dtype);
  text += '[';
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += shape[i] < 0 ? std::string("?") : std::to_string(shape[i]);
  }
  text += "] ";
  text += !average                        ? ExchangeKindName(kind)
          : kind == ExchangeKind::kRowSum ? "average of rows"
                                          : "average";
  if (kind == ExchangeKind::kBroadcast) text += " from worker " + std::to_string(root_rank);
  if (per_host) text += " over GPUs";
  if (backup_workers > 0) text += " of all but " + std::to_string(backup_workers) + " workers";
  if (grace_ms == kAdaptiveGrace) text += " with an adaptive grace window";
  if (grace_ms >= 0) text += " with a grace window of " + std::to_string(grace_ms) + " ms";
  if (staleness >= 0) text += " at most " + std::to_string(staleness) + " steps stale";
  if (!codec.empty()) text += " compressed with " + codec;
  return text;
}

bool TensorDescription::SameExchangeAs(const TensorDescription& other) const {
  const bool is_same_codec =
      codec == other.codec || (IsChosenByCoordinator(codec) && IsChosenByCoordinator(other.codec));
  return dtype == other.dtype && kind == other.kind && average == other.average &&
         per_host == other.per_host && backup_workers == other.backup_workers &&
         grace_ms == other.grace_ms && staleness == other.staleness && home == other.home &&
         is_same_codec && shape == other.shape &&
         (kind != ExchangeKind::kBroadcast || root_rank == other.root_rank);
}

uint64_t KeyOfName(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char byte : name) {
    hash ^= byte;
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace byteps
