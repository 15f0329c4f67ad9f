#include "cc/server/state/store_clocks.h"

#include <algorithm>
#include <limits>

#include "cc/base/store_rounds.h"

namespace byteps {
namespace {

constexpr uint64_t kLeft = std::numeric_limits<uint64_t>::max();

constexpr uint64_t MaskOf(int32_t worker) {
  return worker < kMostWorkersOfMovedStore ? uint64_t{1} << worker : 0;
}

}  // namespace

StoreClocks::StoreClocks(int32_t num_workers, int32_t staleness)
    : staleness_(staleness),
      clocks_(num_workers),
      has_left_(num_workers),
      has_pushed_here_(num_workers, true) {}

bool StoreClocks::IsNewest(uint64_t round) const {
  return value_ != Value::kNone && StoreOf(round) == StoreOfVersion(version_);
}

bool StoreClocks::IsInherited(int32_t worker, uint64_t round) const {
  return !has_pushed_here_[worker] && ((bits_ & MaskOf(worker)) != 0) == PushBit(round);
}

void StoreClocks::NoteClock(int32_t worker, uint64_t clock) {
  if (has_left_[worker])
    clocks_.Set(worker, clock);
  else
    clocks_.Advance(worker, clock);
  has_left_[worker] = false;
}

StoreClocks::Verdict StoreClocks::OnPush(int32_t worker, uint64_t round, uint64_t lead) {
  NoteClock(worker, round + lead + 1);
  const uint64_t store = StoreOf(round);
  const bool is_known = value_ != Value::kNone;
  if (is_known && store < StoreOfVersion(version_)) return Verdict::kOld;
  Verdict verdict = Verdict::kAdd;
  if (!is_known || store > StoreOfVersion(version_)) {
    if (!BeginsStore(round)) return Verdict::kNoValue;
    value_ = Value::kHere;
    version_ = store * kVersionsOfStore;
    bits_ = 0;
    verdict = Verdict::kBegin;
  } else if (value_ == Value::kLost) {
    return Verdict::kLost;
  } else if (BeginsStore(round) || IsInherited(worker, round)) {
    verdict = Verdict::kIsIn;
  }
  // Also where nothing is added: a newer version knows of all pushes that an older one knows of.
  ++version_;
  bits_ = PushBit(round) ? bits_ | MaskOf(worker) : bits_ & ~MaskOf(worker);
  has_pushed_here_[worker] = true;
  return verdict;
}

void StoreClocks::OnTold(int32_t worker, uint64_t round, uint64_t lead) {
  if (!has_left_[worker]) clocks_.Advance(worker, round + lead + 1);
}

void StoreClocks::OnAllJoined(int32_t worker, uint64_t clock) {
  clocks_.Set(worker, clock);
  has_left_[worker] = false;
}

void StoreClocks::OnLeft(int32_t worker) {
  if (has_left_[worker]) return;
  has_left_[worker] = true;
  clocks_.Advance(worker, kLeft);
}

void StoreClocks::Inherit(uint64_t version, uint64_t bits) {
  value_ = Value::kHere;
  version_ = version;
  bits_ = bits;
  has_pushed_here_.assign(has_pushed_here_.size(), false);
}

void StoreClocks::Lose(uint64_t version) {
  value_ = Value::kLost;
  version_ = version;
}

uint64_t StoreClocks::slowest() const { return clocks_.lowest(); }

bool StoreClocks::MustWait(uint64_t round, uint64_t lead) const {
  if (staleness_ < 0) return false;
  // Who has not come to this store yet has pushed nothing to it.
  const uint64_t slowest = std::max(clocks_.lowest(), FirstRoundOf(StoreOf(round)));
  const uint64_t clock = round + lead + 1;
  return clock > slowest && clock - slowest > static_cast<uint64_t>(staleness_);
}

}  // namespace byteps
