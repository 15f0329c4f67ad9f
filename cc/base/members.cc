#include "cc/base/members.h"

#include <optional>
#include <string_view>

namespace byteps {
namespace {

constexpr std::string_view kPrefix = "workers{";
constexpr int32_t kMostRank = 1 << 20;  // far beyond any job

bool IsOfSet(std::string_view name) { return name.substr(0, kPrefix.size()) == kPrefix; }

// Reads "0,2-4}/" and says what is in it; nothing if it is anything else.
class RankList {
 public:
  explicit RankList(const std::string& name) : name_(name), at_(kPrefix.size()) {}

  std::optional<std::vector<int32_t>> Read() {
    do {
      if (!ReadRange()) return std::nullopt;
    } while (Take(','));
    if (!Take('}') || !Take('/')) return std::nullopt;
    return std::move(ranks_);
  }

 private:
  bool ReadRange() {
    const int32_t first = ReadRank();
    const int32_t last = Take('-') ? ReadRank() : first;
    if (first < 0 || last < first || (!ranks_.empty() && first <= ranks_.back())) return false;
    for (int32_t rank = first; rank <= last; ++rank) ranks_.push_back(rank);
    return true;
  }

  // Negative if there is none.
  int32_t ReadRank() {
    int32_t rank = -1;
    for (; at_ < name_.size() && name_[at_] >= '0' && name_[at_] <= '9'; ++at_) {
      rank = (rank < 0 ? 0 : rank * 10) + (name_[at_] - '0');
      if (rank > kMostRank) return -1;
    }
    return rank;
  }

  bool Take(char c) {
    if (at_ >= name_.size() || name_[at_] != c) return false;
    ++at_;
    return true;
  }

  const std::string& name_;
  size_t at_;
  std::vector<int32_t> ranks_;
};

}  // namespace

Members Members::Of(const std::string& name) {
  Members members;
  if (IsOfSet(name)) members.ranks_ = RankList(name).Read().value_or(std::vector<int32_t>());
  return members;
}

Status Members::Check(const std::string& name, int32_t num_workers) {
  if (!IsOfSet(name)) return OkStatus();
  const Members members = Of(name);
  if (members.are_all()) {
    return InvalidArgument(
        "names that begin with \"workers{\" are those of process sets, as "
        "\"workers{0,2-4}/gradient\", and this is none: choose another name");
  }
  if (members.ranks_.back() < num_workers) return OkStatus();
  return InvalidArgument("worker " + std::to_string(members.ranks_.back()) +
                         " of its process set is not one of the " + std::to_string(num_workers) +
                         " workers");
}

}  // namespace byteps
