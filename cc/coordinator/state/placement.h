// Placement: how tensors are cut into parts and which server owns each. Decided once for the job,
// by the coordinator alone (protocol rule 6); deterministic for a given order of declarations.
#pragma once

#include <cstdint>
#include <limits>
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
// How many those are, without making them.
uint64_t NumParts(const TensorDescription& tensor, uint64_t part_bytes);

// What share of the bytes each server should own so that no network link is busier than another:
// the mixed mode of BytePS (OSDI'20, section 3). With n worker hosts and k server-only hosts, a
// server-only host sums 2(n-1)/D of the bytes and a server beside a worker (n-k)/D, D = n^2 + kn -
// 2k; k > n counts as n, and one worker host shares alike. The share of a host is divided among its
// servers. Sums to 1; a share may be 0.
std::vector<double> ServerShares(const std::vector<std::string>& worker_hosts,
                                 const std::vector<std::string>& server_hosts);

// The longest part, for a job that exchanges `model_bytes` a step. While the first parts of a step
// are in flight to the servers no results can be, and while the results of the last parts are
// in flight back nothing else is: at either end the parts of all worker hosts share a server's
// link. Parts of 1/128 of what a host's link carries for a server keep both together below 2 % of a
// step, and balance the servers' loads to about 1 %. Longer parts than 512 KB gain nothing, and the
// order among servers becomes coarser (see worker/part_queue.h). On one host, where no link is
// shared, fewer parts cost less. Never below 128 KB, where the work for each part tells.
uint64_t ChoosePartBytes(uint64_t model_bytes, int32_t num_worker_hosts);

// Assigns parts to servers, keeping every server's load in proportion to its share. Not
// thread-safe.
class Placement {
 public:
  // The hosts are those of all workers and of all servers, by rank. `part_bytes` 0: chosen for each
  // list that is placed, for the largest list so far.
  Placement(const std::vector<std::string>& worker_hosts,
            const std::vector<std::string>& server_hosts, uint64_t part_bytes);

  struct Request {
    const TensorDescription* tensor = nullptr;
    // The first variant of the tensor's key, or null if this is the first: parts with the same
    // index stay on the same server, so that it can see when workers disagree.
    const TableEntry* first = nullptr;
    int32_t first_server = -1;  // if there is no such variant: where part 0 must be; -1: anywhere
  };

  // Places the tensors of a list, the longest parts first, so that the short ones even out what the
  // long ones have left (Graham, 1969: longest processing time first). Parts by request.
  std::vector<std::vector<PartPlacement>> Place(const std::vector<Request>& requests);

  // The same for tensors that were in lists before.
  std::vector<std::vector<PartPlacement>> PlaceAgain(const std::vector<Request>& requests);

  // No longer parts from now on, unless they are fixed.
  void LimitParts(uint64_t part_bytes) { most_part_bytes_ = part_bytes; }

  // The longest part of the next list that is no larger than those before.
  uint64_t part_bytes() const;
  // The same of a tensor. Parts that are compressed are up to four times as long: with most codecs
  // they are as long on the wire then, and there are no more messages for as many bytes. But not
  // longer than 512 KB, not on one host, and not if the length is fixed.
  uint64_t PartBytesOf(const TensorDescription& tensor) const;
  std::vector<uint64_t> Cut(const TensorDescription& tensor) const {
    return CutTensor(tensor, PartBytesOf(tensor));
  }
  uint64_t NumPartsOf(const TensorDescription& tensor) const {
    return NumParts(tensor, PartBytesOf(tensor));
  }

  // Forgets that a server owns these parts.
  void Remove(const TableEntry& entry);

  // A part that needs another owner.
  struct Move {
    uint64_t bytes = 0;
    int32_t server = -1;  // it has been on this one; then the new one
  };
  // Gives parts to the servers that are left, the longest first.
  void MoveParts(std::vector<Move*> parts);

  // Gives some of the parts to other servers, so that the loads are even after each stretch of
  // them: servers that did not take turns would wait for each other.
  void EvenOut(const std::vector<Move*>& parts);

  // Gives a copy of a block of a table that `server` owns to another one, which must not be
  // `other`, where the other copy is, unless only that is left. -1: there is no such copy. Returns
  // the owner.
  int32_t MoveTableBlock(int32_t server, int32_t other);

  // From now on `server` owns no part that is placed.
  void Lose(int32_t server);
  // It is there again, on this host, and owns nothing yet.
  void Return(int32_t server, const std::string& host);

  // Bytes per server so far.
  const std::vector<double>& loads() const { return loads_; }

 private:
  int32_t LeastLoaded() const;
  // See TensorDescription::home.
  int32_t ServerOf(int32_t home) const;
  // `but`: not this one, unless only that is left.
  int32_t LeastOf(const std::vector<double>& loads, int32_t but = -1) const;
  void ShareAmongThoseLeft();

  const std::vector<std::string> worker_hosts_;
  std::vector<std::string> server_hosts_;
  std::vector<bool> is_lost_;  // by server
  std::vector<double> shares_;
  const int32_t num_worker_hosts_;
  const uint64_t fixed_part_bytes_;
  uint64_t most_part_bytes_ = std::numeric_limits<uint64_t>::max();
  uint64_t model_bytes_ = 0;  // of the largest list
  std::vector<double> loads_;
  std::vector<double> row_blocks_;    // how many blocks of sums of rows each server owns
  std::vector<double> table_blocks_;  // how many copies of blocks of tables
};

}  // namespace byteps
