// What a worker declares about a tensor before it exchanges it: everything on which all workers
// must agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/dtype.h"
#include "cc/base/status.h"

namespace byteps {

// How the contributions of the workers become the result. The values travel in declarations: append
// only.
enum class ExchangeKind : uint8_t {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kBroadcast = 3,  // everybody gets the root's value; only the root sends a payload
  kGather = 4,     // concatenation along axis 0 in rank order; lengths may differ
  // Servers hold the sum of all that was ever pushed, and answer each push at once (base/
  // store_rounds.h).
  kStore = 5,
  // Each worker's rows are split among the workers, in rank order; each gets the concatenation of
  // what the others have for it, in rank order. Lengths may differ.
  kAllToAll = 6,
  kProduct = 7,
  // Each worker has some rows of a table, with their indices (base/coded_rows.h). All get all rows
  // that some worker has, those with one index added up.
  kRowSum = 8,
  // Servers hold rows of a table, and what its optimizer keeps for them. A contribution is a
  // request of one worker: to read some rows, or to change them, which is done when all workers
  // have asked (base/table_request.h).
  kTable = 9,
};

// TensorDescription::staleness: no worker waits for another one.
inline constexpr int32_t kUnboundedStaleness = -1;

// TensorDescription::grace_ms: nobody is waited for beyond the quorum, and nobody is asked to come;
// as long as the spread of the workers' arrivals suggests.
inline constexpr int32_t kNoGrace = -2;
inline constexpr int32_t kAdaptiveGrace = -1;

// "sum", "min", "max", "broadcast", "gather", "store", "alltoall", "product",
// "rowsum", "table".
const char* ExchangeKindName(ExchangeKind kind);
bool ParseExchangeKind(const std::string& name, ExchangeKind* kind);

struct TensorDescription {
  std::string name;  // says, too, which workers take part (base/members.h)
  DType dtype = DType::kFloat32;
  // If HasOwnRows the first dimension is each worker's own and is declared as -1.
  std::vector<int64_t> shape;
  ExchangeKind kind = ExchangeKind::kSum;
  // kSum and kRowSum only: divide by the number of workers, floating types only.
  bool average = false;
  int32_t root_rank = 0;  // kBroadcast only
  // The workers of each host share the exchange: of each part the servers get one contribution
  // from each host (base/host_map.h). Not if HasOwnRows.
  bool per_host = false;
  // Sums and averages only, not per_host: a round may end without the contributions of so many
  // workers. One at least is always waited for. An average is divided by the number of those that
  // are in. In the round of a sum a push without payload is no contribution, but the wish for the
  // result, and nobody gets further behind than one round.
  int32_t backup_workers = 0;
  // Sums only: it opens rounds of a quorum. A round that could end without some workers waits so
  // many milliseconds for them, and those who have not begun when the first one comes are asked to
  // (FrameType::kRequested).
  int32_t grace_ms = kNoGrace;
  // kStore only: a worker that has pushed so many times more often than another one waits for its
  // answer until that has pushed again.
  int32_t staleness = kUnboundedStaleness;
  // kTable only: a number of the server that holds the rows. Numbers that differ by 1 are different
  // servers, as long as there are two.
  int32_t home = 0;
  // How contributions are compressed in frames, with all options, as the codec names itself
  // (codec/codec.h); empty: not. Sums and averages of float32; a gather of bytes that the caller
  // has encoded, where it only lets workers find out that they disagree.
  std::string codec;

  // Whether each worker has rows of its own number: exchanges of one part, whose length the
  // contributions say.
  bool HasOwnRows() const {
    return kind == ExchangeKind::kGather || kind == ExchangeKind::kAllToAll ||
           kind == ExchangeKind::kRowSum || kind == ExchangeKind::kTable;
  }

  // Whether servers hold values from one round to the next. Each worker then counts its own rounds.
  bool IsHeldByServers() const {
    return kind == ExchangeKind::kStore || kind == ExchangeKind::kTable;
  }

  // Elements of the whole tensor; if HasOwnRows elements of one row.
  int64_t ElementCount() const;
  uint64_t ByteCount() const { return static_cast<uint64_t>(ElementCount()) * DTypeSize(dtype); }

  // Refuses more than kMaxTensorBytes, an average of integers, a negative dimension, an empty or
  // overlong name, a bad root, backup workers of a minimum or a broadcast, a store of 16-bit floats
  // or of hosts, members that the job has not or for which the exchange is not made, a codec for
  // what it is not made for. Whether the codec is known is codec/part_forms.h's to say.
  Status Validate(int32_t num_workers) const;

  // "float32[3,4] sum", as error messages show it.
  std::string ToString() const;

  // Whether rounds end without some workers, and those who are missed are one round behind at most.
  bool IsQuorumSum() const { return !average && backup_workers > 0; }

  // Same dtype, shape, kind, average, root, per_host, backup_workers, grace_ms, staleness,
  // home and codec: the workers agree.
  bool SameExchangeAs(const TensorDescription& other) const;

 private:
  Status ValidateMembers(int32_t num_workers) const;
  Status ValidateStore() const;
};

// Of one tensor; no frame may announce more, either.
inline constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 40;

// A codec that the coordinator chooses, one for all tensors of the job that ask for it: they are
// raw until it has, and then perhaps int8 (coordinator/state/tuning.h). Both names are of one
// exchange: workers declare the first, and the table has the second where parts are int8.
inline constexpr char kAutoCodec[] = "auto";
inline constexpr char kAutoInt8Codec[] = "auto:int8";

// Names travel in frames and in error messages.
inline constexpr size_t kMaxNameBytes = 1024;
inline constexpr size_t kMaxCodecBytes = 256;

// The 64-bit key of a name (FNV-1a). Equal on every host and in every release.
uint64_t KeyOfName(const std::string& name);

}  // namespace byteps
