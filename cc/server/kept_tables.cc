#include "cc/server/kept_tables.h"

#include <vector>

namespace byteps {

void KeptTables::Keep(std::unique_ptr<TableRows> rows) {
  const Block block = BlockOf(rows->spec());
  MutexLock lock(mutex_);
  if (rows->points().empty())
    blocks_.erase(block);
  else
    blocks_[block] = std::move(rows);
}

std::unique_ptr<TableRows> KeptTables::Take(const TableSpec& spec, const TablePoint& point) {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(BlockOf(spec));
  if (found == blocks_.end() || !found->second->spec().SameTableAs(spec)) return nullptr;
  if (!found->second->GoBack(point)) return nullptr;
  std::unique_ptr<TableRows> rows = std::move(found->second);
  blocks_.erase(found);
  return rows;
}

void KeptTables::Drop(const TableSpec& spec) {
  MutexLock lock(mutex_);
  blocks_.erase(BlockOf(spec));
}

void KeptTables::DropAll() {
  MutexLock lock(mutex_);
  blocks_.clear();
}

std::string KeptTables::Encode() const {
  std::string bytes;
  const auto append = [&bytes](uint64_t value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  MutexLock lock(mutex_);
  for (const auto& [block, rows] : blocks_) {
    const std::vector<TablePoint> points = rows->points();
    append(rows->spec().block);
    append(rows->spec().num_blocks);
    append(block.first.size());
    append(points.size());
    bytes += block.first;
    for (const TablePoint& point : points) {
      append(point.epoch);
      append(point.number);
    }
  }
  return bytes;
}

}  // namespace byteps
