// What happens to a tensor whose results come to memory that the workers of a host share: its parts
// are reduced to their owners, which exchange them with the servers, and each rank's stream copies
// all of it when it has come.
#include <utility>

#include "cc/base/logging.h"
#include "cc/staging/local_group.h"

namespace byteps {
namespace {

std::string IdentityOf(const NcclUniqueId& id) { return {id.bytes.begin(), id.bytes.end()}; }

void WarnOf(const Status& status) {
  LogWarning(
      "the GPUs' streams cannot wait for servers by themselves, so that compiled steps take "
      "longer: " +
      status.message());
}

}  // namespace

SharedFile LocalGroup::NewSharedResults(const NcclUniqueId& id) {
  if (place_.is_one_host() || !device_->StreamsWaitForHost()) return {};
  const Status status =
      SharedResults::Create(IdentityOf(id), place_.local_size, device_->pinner(), &shared_results_);
  if (status.ok()) return shared_results_->file();
  WarnOf(status);
  return {};
}

bool LocalGroup::OpenSharedResults(const GroupInvitation& invitation) {
  if (invitation.results.descriptor < 0 || !device_->StreamsWaitForHost()) return false;
  if (place_.local_rank == 0) return true;
  const Status status = SharedResults::Open(invitation.results, IdentityOf(invitation.id),
                                            place_.local_size, device_->pinner(), &shared_results_);
  if (!status.ok()) WarnOf(status);
  return status.ok();
}

// What the device decodes comes as it is or encoded, which is known too late for a stream.
bool LocalGroup::TakesShared(const TensorPointer& tensor) const {
  if (tensor->on_submitted == nullptr || place_.is_one_host()) return false;
  const Exchange& exchange = *tensor->exchange;
  for (uint32_t part = 0; part < exchange.entry->parts.size(); ++part) {
    if (SumFormOf(exchange, part, place_.rank, device_.get()).codec != CodecId::kRaw) return false;
  }
  return true;
}

Status LocalGroup::PlaceShared(const TensorPointer& tensor) {
  const Exchange& exchange = *tensor->exchange;
  const auto parts = static_cast<uint32_t>(exchange.entry->parts.size());
  SharedResults::Place place;
  BYTEPS_RETURN_IF_ERROR(
      shared_results_->PlaceOf(exchange.entry->key, tensor->gpu.tensor.ByteCount(), parts, &place));
  std::vector<ArrivalPointer> arrivals;
  for (uint32_t part = 0; part < parts; ++part) {
    const auto arrival = std::make_shared<StagedArrival>();
    arrival->offset = exchange.PartOffset(part);
    arrival->bytes = SpanOf(*tensor, part).bytes();
    arrival->memory = PinnedPool::Block(shared_results_, place.values + arrival->offset);
    arrival->words = place.words + part * place_.local_size;
    arrival->streams = place_.local_size;
    arrival->own = place_.local_rank;
    arrival->arrived = place.arrived;
    arrivals.push_back(arrival);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  tensor->arrivals = std::move(arrivals);
  tensor->is_copied_by_stream = true;
  return OkStatus();
}

bool LocalGroup::SetArrival(const PartPointer& part) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (part->tensor->arrivals.empty()) return false;
  part->arrival = part->tensor->arrivals[part->number];
  part->output = part->arrival->memory;
  return true;
}

}  // namespace byteps
