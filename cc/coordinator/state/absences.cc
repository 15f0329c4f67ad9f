#include "cc/coordinator/state/absences.h"

#include <algorithm>

#include "cc/base/seconds.h"
#include "cc/wire/handshake.h"

namespace byteps {
namespace {

// When somebody tries to reach a process, in seconds after its connection broke. Few, because for
// the one that listens they are strangers. The first one a little later: whoever lives is back by
// then.
constexpr double kLooks[] = {0.02, 0.1, 0.3, 0.7, 1.2, kReconnectSeconds};
constexpr int kMostLooks = sizeof(kLooks) / sizeof(kLooks[0]);

}  // namespace

void Absences::Add(size_t peer, const Endpoint& listens_at, int64_t now_ns) {
  absent_[peer] = {listens_at, now_ns, 0, ++last_id_};
}

int64_t Absences::NextLookNanos(const Absence& absence) {
  return absence.begin_ns + SecondsToNanos(kLooks[absence.looks]);
}

Absences::Absent::const_iterator Absences::Next() const {
  return std::min_element(absent_.begin(), absent_.end(), [](const auto& a, const auto& b) {
    return NextLookNanos(a.second) < NextLookNanos(b.second);
  });
}

std::optional<int64_t> Absences::NextLookNanos() const {
  if (absent_.empty()) return std::nullopt;
  return NextLookNanos(Next()->second);
}

Absences::Look Absences::BeginLook() {
  const size_t peer = Next()->first;
  const Absence& absence = absent_[peer];
  return {peer, absence.listens_at, absence.id, absence.looks + 1 >= kMostLooks};
}

std::string Absences::EndLook(const Look& look, bool is_refused) {
  const auto found = absent_.find(look.peer);
  // Somebody may have come, and be absent again, meanwhile.
  if (found == absent_.end() || found->second.id != look.id) return "";
  if (!is_refused && !look.is_last) {
    ++found->second.looks;
    return "";
  }
  absent_.erase(found);
  if (is_refused) return "nobody listens at " + look.listens_at.ToString() + " any more";
  return "it did not come back within " + std::to_string(static_cast<int>(kReconnectSeconds)) +
         " s";
}

}  // namespace byteps
