// ServedTensor: what a server knows about one tensor: its variants, and the rounds of the parts
// that live here.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/host_map.h"
#include "cc/base/status.h"
#include "cc/server/served_part.h"
#include "cc/wire/control.h"

namespace byteps {

// Counters that many threads increment.
struct Tally {
  std::atomic<uint64_t> pushes{0};
  std::atomic<uint64_t> pushed_bytes{0};
  std::atomic<uint64_t> late_pushes{0};
  std::atomic<uint64_t> replies{0};
  std::atomic<uint64_t> replied_bytes{0};
  std::atomic<uint64_t> rounds_completed{0};
};

// AddVariant and DropMoved exclude all other calls (the service's mutex sees to it); the rest may
// overlap.
class ServedTensor {
 public:
  ServedTensor(std::string name, int32_t server_rank)
      : name_(std::move(name)), server_rank_(server_rank) {}

  const std::string& name() const { return name_; }

  // `part_options` but for tensor_name and part. Refuses an entry that contradicts a known one; the
  // same entry again changes nothing. Parts of a newer version have moved.
  Status AddVariant(const TableEntry& entry, const ServedPart::Options& part_options);

  // Before AddVariant with all of these entries: forgets the rounds of parts that leave this server
  // by `version`, or come to it anew. Pushes that are arriving end in what they have begun, which
  // nobody waits for.
  void DropMoved(const std::vector<TableEntry>& entries, uint64_t key, uint32_t version);

  // Null if unknown. What it returns lives as long as this object.
  const TableEntry* FindVariant(uint32_t variant) const;
  // Null if it is not here.
  std::shared_ptr<ServedPart> FindPart(uint32_t part) const;
  // Where a part of a known variant lives now; null if it has no such part.
  const PartPlacement* FindPlace(uint32_t variant, uint32_t part) const;

  // Whether a part has been here, or anywhere else, before it moved.
  bool HasMoved(uint32_t part) const;

  // Whether `part` is the first one on this server: the one whose rounds are counted.
  bool IsFirstPart(uint32_t part) const;

  // For counters.
  void Used(const TableEntry* entry) { last_used_ = entry; }
  const TableEntry* last_entry() const { return last_used_; }
  TensorDescription last_used() const { return last_used_.load()->tensor; }
  Tally& tally() { return tally_; }
  const Tally& tally() const { return tally_; }

  const std::map<uint32_t, std::shared_ptr<ServedPart>>& parts() const { return parts_; }

 private:
  struct Variant {
    std::unique_ptr<const TableEntry> entry;  // as it was first known
    std::vector<PartPlacement> places;        // as they are now
  };

  Status CheckKnown(const Variant& known, const TableEntry& entry) const;
  void AddPart(const TableEntry* entry, uint32_t part, const ServedPart::Options& part_options);

  const std::string name_;
  const int32_t server_rank_;
  std::map<uint32_t, Variant> variants_;
  std::map<uint32_t, std::shared_ptr<ServedPart>> parts_;
  std::atomic<const TableEntry*> last_used_{nullptr};
  Tally tally_;
};

// Refuses a push that is not this worker's to make, or whose sizes are not what `entry` promises of
// it. Messages go on after "worker 1 made a push of tensor "x"".
Status CheckPush(const TableEntry& entry, const FrameHeader& header, const HostMap& hosts);
// The same for the result of a round (FrameHeader::IsResult).
Status CheckResult(const TableEntry& entry, const FrameHeader& header, const HostMap& hosts);

}  // namespace byteps
