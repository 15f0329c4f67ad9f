// How a block of a table goes on in the next membership epoch of an elastic job (docs/protocol.md,
// rule 40): with the rows that it has when this epoch ends, or those that it had at a commit.
#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/server/kept_tables.h"
#include "cc/server/part_table.h"

namespace byteps {

// A worker makes no change until it has the answer, so that nobody does.
Status PartTable::Mark(const Newest& worker) {
  uint64_t least = 0;
  const Status checked = DecodeTableMark(worker.request, &least);
  if (!checked.ok()) return Refused(worker, checked);
  if (rows_ == nullptr || !changes_.MayCopy(worker.request.number)) return Lost();
  rows_->Mark({options_.epoch, changes_.made()});
  least_[worker.header.worker] = std::min(least, changes_.made());
  rows_->Forget(*std::min_element(least_.begin(), least_.end()));
  return OkStatus();
}

// The table that all workers make, or go on with.
Status PartTable::Agree(const std::vector<int32_t>& ranks, TableSpec* spec,
                        TablePoint* point) const {
  for (const int32_t rank : ranks) {
    TableSpec of_worker;
    TablePoint at;
    const TableRequest& request = workers_[rank].request;
    const Status decoded = request.kind == TableRequest::Kind::kMake
                               ? DecodeTableSpec(request, &of_worker)
                               : DecodeTableResume(request, &of_worker, &at);
    if (!decoded.ok()) return Refused(workers_[rank], decoded);
    if (rank == ranks[0]) {
      *spec = of_worker;
      *point = at;
    }
    if (!of_worker.SameTableAs(*spec)) {
      return FailedPrecondition(
          "the workers make different tables of one name: " + WorkerName(ranks[0]) + " \"" +
          spec->name + "\", " + spec->ToString() + "; " + WorkerName(rank) + " \"" +
          of_worker.name + "\", " + of_worker.ToString() +
          ": all workers must make the same layers in the same order");
    }
    if (!(at == *point)) {
      return FailedPrecondition("the workers go on with the table \"" + spec->name +
                                "\" at different points: " + WorkerName(ranks[0]) + " after " +
                                std::to_string(point->number) + " changes, " + WorkerName(rank) +
                                " after " + std::to_string(at.number));
    }
  }
  return OkStatus();
}

// UNAVAILABLE: this server has not kept them.
Status PartTable::ResumeTable(const std::vector<int32_t>& ranks) {
  TableSpec spec;
  TablePoint point;
  BYTEPS_RETURN_IF_ERROR(Agree(ranks, &spec, &point));
  std::unique_ptr<TableRows> kept =
      options_.kept == nullptr ? nullptr : options_.kept->Take(spec, point);
  if (kept == nullptr) return Lost();
  rows_ = std::move(kept);
  rows_->CountAmong(options_.memory.allocated);
  least_.assign(least_.size(), point.number);
  return OkStatus();
}

Status PartTable::TellKept(int32_t rank, std::shared_ptr<Buffer>* answer) const {
  std::string bytes(reinterpret_cast<const char*>(&options_.server_rank),
                    sizeof(options_.server_rank));
  if (options_.kept != nullptr) bytes += options_.kept->Encode();
  BYTEPS_RETURN_IF_ERROR(NewAnswer(rank, bytes.size(), answer));
  std::memcpy((*answer)->data() + options_.num_workers * sizeof(int64_t), bytes.data(),
              bytes.size());
  return OkStatus();
}

void PartTable::Keep() {
  MutexLock lock(mutex_);
  if (options_.kept == nullptr || rows_ == nullptr || !changes_.is_whole()) return;
  options_.kept->Keep(std::move(rows_));
  changes_.Lose();
}

}  // namespace byteps
