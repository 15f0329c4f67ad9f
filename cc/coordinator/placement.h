// Placement: how tensors are cut into parts and which server owns each. Decided once for the job,
// by the coordinator alone (protocol rule 6); deterministic for a given order of declarations.
#ifndef TF_BYTEPS_CC_COORDINATOR_PLACEMENT_H_
#define TF_BYTEPS_CC_COORDINATOR_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/tensor_description.h"
#include "cc/wire/control.h"

namespace byteps {

// Element counts of the parts of a tensor: at most `part_bytes` each (one element at least), cut
// between rows of the first axis where a row fits into a part, never empty except for the one part
// of an empty tensor.
std::vector<uint64_t> CutTensor(const TensorDescription& tensor, uint64_t part_bytes);

// What share of the bytes each server should own so that no network link is busier than another:
// the mixed mode of BytePS (OSDI'20, section 3). With n worker hosts and k server-only hosts, a
// server-only host sums 2(n-1)/D of the bytes and a server beside a worker (n-k)/D, D = n^2 + kn -
// 2k; k > n counts as n, and one worker host shares alike. The share of a host is divided among its
// servers. Sums to 1; a share may be 0.
std::vector<double> ServerShares(const std::vector<std::string>& worker_hosts,
                                 const std::vector<std::string>& server_hosts);

// Assigns parts to servers, keeping every server's load in proportion to its share. Not
// thread-safe.
class Placement {
 public:
  Placement(std::vector<double> shares, uint64_t part_bytes);

  // Places the first variant of a key, or another variant of the key that `first` belongs to (null:
  // none): parts with the same index stay on the same server, so that server can see when workers
  // disagree.
  std::vector<PartPlacement> Place(const TensorDescription& tensor, const TableEntry* first);

  // Bytes per server so far.
  const std::vector<double>& loads() const { return loads_; }

 private:
  int32_t LeastLoaded() const;

  const std::vector<double> shares_;
  const uint64_t part_bytes_;
  std::vector<double> loads_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_COORDINATOR_PLACEMENT_H_
