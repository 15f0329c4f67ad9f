#include "cc/coordinator/state/placement.h"

#include <algorithm>
#include <map>
#include <set>

namespace byteps {
namespace {

// What a message costs besides its bytes, in bytes: keeps many tiny tensors from gathering on one
// server.
constexpr uint64_t kPartOverheadBytes = 4096;

double Load(uint64_t part_bytes) { return static_cast<double>(part_bytes + kPartOverheadBytes); }

constexpr uint64_t kLeastPartBytes = 128 * 1024;
constexpr uint64_t kMostPartBytes = 512 * 1024;
constexpr uint64_t kMostPartBytesOnOneHost = 4 * 1024 * 1024;
constexpr uint64_t kPartsOfALink = 128;
constexpr uint64_t kPartsOnOneHost = 64;
constexpr uint64_t kCompressedParts = 4;  // times as long

}  // namespace

namespace {

// How a tensor is cut: into parts of `in_part` elements, the last of which may have fewer.
struct EqualParts {
  uint64_t elements = 0;
  uint64_t in_part = 0;

  uint64_t NumParts() const { return elements == 0 ? 1 : (elements + in_part - 1) / in_part; }
};

EqualParts CutOf(const TensorDescription& tensor, uint64_t part_bytes) {
  const uint64_t elements = tensor.ElementCount();
  // The length of such is known only when all contributions are in: it is never cut.
  if (elements == 0 || tensor.HasOwnRows()) return {elements, elements};
  uint64_t unit = 1;
  if (tensor.shape.size() >= 2) {
    const uint64_t row = elements / tensor.shape[0];
    if (row * DTypeSize(tensor.dtype) <= part_bytes) unit = row;
  }
  return {elements, unit * std::max<uint64_t>(1, part_bytes / (unit * DTypeSize(tensor.dtype)))};
}

}  // namespace

uint64_t NumParts(const TensorDescription& tensor, uint64_t part_bytes) {
  return CutOf(tensor, part_bytes).NumParts();
}

std::vector<uint64_t> CutTensor(const TensorDescription& tensor, uint64_t part_bytes) {
  const EqualParts cut = CutOf(tensor, part_bytes);
  std::vector<uint64_t> parts(cut.NumParts(), cut.in_part);
  parts.back() = cut.elements - (parts.size() - 1) * cut.in_part;
  return parts;
}

std::vector<double> ServerShares(const std::vector<std::string>& worker_hosts,
                                 const std::vector<std::string>& server_hosts) {
  const std::set<std::string> with_worker(worker_hosts.begin(), worker_hosts.end());
  std::map<std::string, int> servers_on_host;
  for (const std::string& host : server_hosts) ++servers_on_host[host];
  const double n = with_worker.size();
  double server_only_hosts = 0;
  for (const auto& [host, count] : servers_on_host)
    server_only_hosts += with_worker.count(host) == 0 ? 1 : 0;
  const double k = std::min(server_only_hosts, n);

  std::vector<double> shares;
  double total = 0;
  for (const std::string& host : server_hosts) {
    double share = 1;
    if (n >= 2) {
      const double d = n * n + k * n - 2 * k;
      share = with_worker.count(host) == 0 ? 2 * (n - 1) / d : (n - k) / d;
    }
    shares.push_back(share / servers_on_host[host]);
    total += shares.back();
  }
  for (double& share : shares) share /= total;
  return shares;
}

uint64_t ChoosePartBytes(uint64_t model_bytes, int32_t num_worker_hosts) {
  const bool links = num_worker_hosts > 1;
  const uint64_t parts = links ? kPartsOfALink * num_worker_hosts : kPartsOnOneHost;
  return std::clamp(model_bytes / parts, kLeastPartBytes,
                    links ? kMostPartBytes : kMostPartBytesOnOneHost);
}

Placement::Placement(const std::vector<std::string>& worker_hosts,
                     const std::vector<std::string>& server_hosts, uint64_t part_bytes)
    : worker_hosts_(worker_hosts),
      server_hosts_(server_hosts),
      is_lost_(server_hosts.size(), false),
      shares_(ServerShares(worker_hosts, server_hosts)),
      num_worker_hosts_(std::set<std::string>(worker_hosts.begin(), worker_hosts.end()).size()),
      fixed_part_bytes_(part_bytes),
      loads_(shares_.size(), 0),
      row_blocks_(shares_.size(), 0),
      table_blocks_(shares_.size(), 0) {}

uint64_t Placement::part_bytes() const {
  if (fixed_part_bytes_ > 0) return fixed_part_bytes_;
  return std::min(ChoosePartBytes(model_bytes_, num_worker_hosts_), most_part_bytes_);
}

uint64_t Placement::PartBytesOf(const TensorDescription& tensor) const {
  const bool is_compressed = !tensor.codec.empty() && tensor.codec != kAutoCodec;
  if (!is_compressed || fixed_part_bytes_ > 0 || num_worker_hosts_ == 1) return part_bytes();
  return std::min(kCompressedParts * part_bytes(), kMostPartBytes);
}

void Placement::Remove(const TableEntry& entry) {
  for (const PartPlacement& part : entry.parts) {
    // Other variants own nothing but what they have more of it than the first.
    if (entry.variant == 0)
      loads_[part.server] -= Load(part.element_count * DTypeSize(entry.tensor.dtype));
    if (entry.tensor.kind == ExchangeKind::kRowSum) --row_blocks_[part.server];
  }
}

void Placement::Lose(int32_t server) {
  is_lost_[server] = true;
  ShareAmongThoseLeft();
}

void Placement::Return(int32_t server, const std::string& host) {
  is_lost_[server] = false;
  server_hosts_[server] = host;
  loads_[server] = row_blocks_[server] = table_blocks_[server] = 0;
  ShareAmongThoseLeft();
}

void Placement::ShareAmongThoseLeft() {
  std::vector<std::string> hosts;
  for (size_t i = 0; i < is_lost_.size(); ++i) {
    if (!is_lost_[i]) hosts.push_back(server_hosts_[i]);
  }
  const std::vector<double> left = ServerShares(worker_hosts_, hosts);
  size_t next = 0;
  for (size_t i = 0; i < is_lost_.size(); ++i) shares_[i] = is_lost_[i] ? 0 : left[next++];
}

void Placement::MoveParts(std::vector<Move*> parts) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Move* a, const Move* b) { return a->bytes > b->bytes; });
  for (const Move* part : parts) loads_[part->server] -= Load(part->bytes);
  for (Move* part : parts) {
    part->server = LeastLoaded();
    loads_[part->server] += Load(part->bytes);
  }
}

void Placement::EvenOut(const std::vector<Move*>& parts) {
  for (const Move* part : parts) loads_[part->server] -= Load(part->bytes);
  for (Move* part : parts) {
    const double load = Load(part->bytes);
    const auto loaded = [&](int32_t server) { return (loads_[server] + load) / shares_[server]; };
    const int32_t to = LeastLoaded();
    if (shares_[part->server] <= 0 || loaded(part->server) > loaded(to)) part->server = to;
    loads_[part->server] += load;
  }
}

int32_t Placement::LeastLoaded() const { return LeastOf(loads_); }

int32_t Placement::LeastOf(const std::vector<double>& loads, int32_t but) const {
  int32_t best = -1;
  for (size_t server = 0; server < shares_.size(); ++server) {
    if (shares_[server] <= 0 || static_cast<int32_t>(server) == but) continue;
    if (best < 0 || loads[server] / shares_[server] < loads[best] / shares_[best])
      best = static_cast<int32_t>(server);
  }
  return best < 0 ? but : best;
}

int32_t Placement::MoveTableBlock(int32_t server, int32_t other) {
  --table_blocks_[server];
  const int32_t to = LeastOf(table_blocks_, other);
  ++table_blocks_[to];
  return to;
}

int32_t Placement::ServerOf(int32_t home) const {
  std::vector<int32_t> servers;
  for (size_t server = 0; server < shares_.size(); ++server) {
    if (shares_[server] > 0) servers.push_back(static_cast<int32_t>(server));
  }
  return servers[home % servers.size()];
}

std::vector<std::vector<PartPlacement>> Placement::Place(const std::vector<Request>& requests) {
  uint64_t list_bytes = 0;
  for (const Request& request : requests) list_bytes += request.tensor->ByteCount();
  model_bytes_ = std::max(model_bytes_, list_bytes);
  return PlaceAgain(requests);
}

std::vector<std::vector<PartPlacement>> Placement::PlaceAgain(
    const std::vector<Request>& requests) {
  std::vector<std::vector<PartPlacement>> placed(requests.size());
  struct Part {
    uint64_t bytes;
    PartPlacement* place;
    int32_t must_be_at;  // a server, or -1
    bool is_row_block;
    int32_t home;  // of a table, or -1
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [tensor, first, first_server] = requests[i];
    const std::vector<uint64_t> cut = Cut(*tensor);
    placed[i].resize(cut.size());
    for (size_t index = 0; index < cut.size(); ++index) {
      const uint64_t bytes = cut[index] * DTypeSize(tensor->dtype);
      placed[i][index].element_count = cut[index];
      if (first != nullptr && index < first->parts.size()) {
        // Variants of a key take turns, they do not add up. Rows that were gathered before are
        // a block now: the others belong elsewhere.
        placed[i][index].server = first->parts[index].server;
        if (tensor->kind == ExchangeKind::kRowSum) ++row_blocks_[first->parts[index].server];
      } else {
        parts.push_back({bytes, &placed[i][index], index == 0 ? first_server : -1,
                         tensor->kind == ExchangeKind::kRowSum,
                         tensor->kind == ExchangeKind::kTable ? tensor->home : -1});
      }
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.bytes > b.bytes; });
  for (const Part& part : parts) {
    // How long blocks of rows are, only their rounds say; those of one table are alike.
    const int32_t best = part.home >= 0      ? ServerOf(part.home)
                         : part.is_row_block ? LeastOf(row_blocks_)
                                             : LeastLoaded();
    part.place->server = part.must_be_at >= 0 ? part.must_be_at : best;
    if (part.is_row_block) ++row_blocks_[part.place->server];
    if (part.home >= 0) ++table_blocks_[part.place->server];
    loads_[part.place->server] += Load(part.bytes);
  }
  return placed;
}

}  // namespace byteps
