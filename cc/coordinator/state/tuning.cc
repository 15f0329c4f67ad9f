#include "cc/coordinator/state/tuning.h"

#include <algorithm>
#include <limits>

namespace byteps {
namespace {

constexpr double kSecondsOnTheWay = 0.020;
constexpr uint64_t kLeastCredit = uint64_t{256} << 10;
constexpr uint64_t kMostCredit = uint64_t{16} << 20;
// Enough of them for all servers to have one in flight, and another: while one waits for a busy
// server, the others idle. Where there are few servers, on slow links, rather fewer parts than very
// short ones.
constexpr uint64_t kPartsOfTheCredit = 16;
constexpr uint64_t kFewestPartsOfTheCredit = 8;
constexpr uint64_t kPartsOfAServer = 2;
constexpr uint64_t kShortPart = uint64_t{64} << 10;
constexpr uint64_t kShortestPart = uint64_t{16} << 10;
constexpr uint64_t kShortestPartOfFastLinks = uint64_t{128} << 10;
constexpr double kSecondsOfAPart = 0.0001;  // at least: to push, sum and answer one takes 20 us
constexpr double kSecondsUnsent = 0.002;
constexpr uint64_t kLeastUnsent = uint64_t{64} << 10;
constexpr uint64_t kMostUnsent = uint64_t{512} << 10;

// Of the bytes of float32: what int8 leaves out in blocks of 32 elements with 16 bits for each.
constexpr double kSavedByInt8 = 1 - 8.5 / 32;

}  // namespace

bool CompressesAt(uint64_t bytes_per_second, uint64_t codec_bytes_per_second) {
  return 2.0 * bytes_per_second < kSavedByInt8 * codec_bytes_per_second;
}

TunedSizes SizesFor(uint64_t bytes_per_second, uint64_t round_trip_ns, int32_t num_servers,
                    const EngineOptions& options) {
  const double seconds = kSecondsOnTheWay + 2e-9 * round_trip_ns;
  const double bytes = std::min<double>(kMostCredit, bytes_per_second * seconds);
  const uint64_t credit = std::max(kLeastCredit, static_cast<uint64_t>(bytes));
  const uint64_t all_busy = kPartsOfAServer * num_servers;
  const auto shortest = static_cast<uint64_t>(std::clamp<double>(
      bytes_per_second * kSecondsOfAPart, kShortestPart, kShortestPartOfFastLinks));
  const uint64_t least = std::min(kShortPart, credit / std::max(kFewestPartsOfTheCredit, all_busy));
  const uint64_t wanted = credit / std::max(kPartsOfTheCredit, all_busy);
  const uint64_t part = std::max({wanted, least, shortest});
  TunedSizes sizes;
  if (options.flow.part_bytes == 0) sizes.part_bytes = part;
  if (options.flow.credit_bytes == 0) {
    const double most = std::max<double>(credit, 2 * bytes_per_second * seconds);
    const double busy = options.flow.part_bytes == 0 ? double{1} * all_busy * part : 0;
    sizes.credit_bytes = std::max(credit, static_cast<uint64_t>(std::min(most, busy)));
  }
  const auto unsent = static_cast<uint64_t>(bytes_per_second * kSecondsUnsent);
  sizes.unsent_bytes = std::clamp(unsent, kLeastUnsent, kMostUnsent);
  return sizes;
}

Tuning::Tuning(const JobDescription& job)
    : options_(job.options), num_servers_(job.num_servers()), decided_(!job.TunesItself()) {
  for (int32_t rank = 0; rank < job.num_workers(); ++rank) {
    unreported_.insert(rank);
    unpaused_.insert(rank);
  }
}

std::optional<TunedSizes> Tuning::OnReport(int32_t rank, const LinkReport& report) {
  if (decided_) return std::nullopt;
  reports_[rank] = report;
  unreported_.erase(rank);
  if (!unreported_.empty()) return std::nullopt;
  slowest_rate_ = std::numeric_limits<uint64_t>::max();
  fastest_rate_ = 0;
  uint64_t farthest_ns = 0;
  uint64_t slowest_codec = std::numeric_limits<uint64_t>::max();
  for (const auto& [from, each] : reports_) {
    if (each.bytes_per_second < slowest_rate_) slowest_ = from;
    slowest_rate_ = std::min(slowest_rate_, each.bytes_per_second);
    fastest_rate_ = std::max(fastest_rate_, each.bytes_per_second);
    farthest_ns = std::max(farthest_ns, each.round_trip_ns);
    slowest_codec = std::min(slowest_codec, each.codec_bytes_per_second);
  }
  decided_ = true;
  TunedSizes sizes = SizesFor(slowest_rate_, farthest_ns, num_servers_, options_);
  sizes.compresses = CompressesAt(slowest_rate_, slowest_codec);
  return sizes;
}

std::string Tuning::Links() const {
  const auto megabytes = [](uint64_t rate) { return std::to_string(rate / 1000000) + " MB/s"; };
  return megabytes(slowest_rate_) + " (worker " + std::to_string(slowest_) + ") to " +
         megabytes(fastest_rate_);
}

void Tuning::OnRoundProgress(int32_t rank, const RoundProgress& progress) {
  if (unpaused_.erase(rank) == 0) return;
  for (const RoundProgress::Tensor& tensor : progress.tensors) {
    uint64_t& next = next_rounds_[tensor.key];
    next = std::max(next, tensor.next_round);
  }
}

void Tuning::OnDeparted(int32_t rank) {
  reports_.erase(rank);
  unreported_.erase(rank);
  unpaused_.erase(rank);
}

uint64_t Tuning::FirstRoundOfAll(uint64_t key) const {
  const auto found = next_rounds_.find(key);
  return found == next_rounds_.end() ? 0 : found->second;
}

}  // namespace byteps
