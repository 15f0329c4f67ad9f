// KeptTables: blocks of tables that a server process keeps from one membership epoch of an elastic
// job to the next (docs/protocol.md, rule 40). Each epoch has a Server of its own.
//
// It owns the rows until a part of the next epoch takes them, or nobody needs them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cc/base/mutex.h"
#include "cc/base/table_request.h"
#include "cc/server/table_rows.h"

namespace byteps {

// Thread-safe.
class KeptTables {
 public:
  // In place of what it has of this block. Rows that can go back to no point are not kept.
  void Keep(std::unique_ptr<TableRows> rows);

  // The rows of this block, as they were at `point`; null, and they stay: they are not here, or
  // cannot go back to it.
  std::unique_ptr<TableRows> Take(const TableSpec& spec, const TablePoint& point);

  // It does not need this block any more; any block.
  void Drop(const TableSpec& spec);
  void DropAll();

  // The answer to a kKept, behind the server's rank.
  std::string Encode() const;

 private:
  using Block = std::pair<std::string, uint64_t>;  // the table's name, and which block
  static Block BlockOf(const TableSpec& spec) { return {spec.name, spec.block}; }

  mutable Mutex mutex_;
  std::map<Block, std::unique_ptr<TableRows>> blocks_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps
