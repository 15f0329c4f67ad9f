#include "cc/server/summation_service.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/base/mutex.h"
#include "cc/codec/part_forms.h"
#include "cc/server/arrival_lags.h"
#include "cc/server/membership.h"
#include "cc/server/served_part.h"
#include "cc/server/served_tensor.h"
#include "cc/server/worker_connection.h"
#include "cc/van/buffer_sink.h"
#include "cc/wire/control_frame.h"

namespace byteps {
namespace {

// What a connection carries as its context. The push is touched by the connection's own thread
// only.
struct ConnectionContext {
  explicit ConnectionContext(std::shared_ptr<WorkerConnection> worker)
      : worker(std::move(worker)) {}

  const std::shared_ptr<WorkerConnection> worker;

  struct Arriving {
    Push push;
    ServedTensor* tensor = nullptr;
    // Null: it was made by an old placement. Nobody waits for it, and it is dropped.
    std::shared_ptr<ServedPart> rounds;
    bool is_first_part = false;
  };
  // Pushes whose payloads are arriving; the last one ends first (ConnectionHandler::OnHeader).
  std::deque<Arriving> arriving;

  Arriving TakeLast() {
    Arriving last = std::move(arriving.back());
    arriving.pop_back();
    return last;
  }
};

using Arriving = ConnectionContext::Arriving;

ConnectionContext* ContextOf(Connection& connection) {
  return static_cast<ConnectionContext*>(connection.context());
}

}  // namespace

class SummationService::Impl {
 public:
  explicit Impl(const Options& options)
      : options_(options),
        hosts_(HostsOf(options)),
        memory_{options.registry},
        lags_(options.num_workers),
        connections_(options.num_workers) {}

  Status AddEntries(const std::vector<TableEntry>& entries);
  Status MoveParts(const PartsMoved& moved);
  Status BeginPush(Connection& connection, const FrameHeader& header,
                   std::shared_ptr<PayloadSink>* sink);
  void EndPush(ConnectionContext* context);
  void EndWithdrawal(ConnectionContext* context, const std::string& reason);
  void SendCredit(WorkerConnection* worker);
  void AskFor(const FrameHeader& pushed, const std::vector<int32_t>& lacking);
  void OnResultsHeld(const std::vector<RoundsHeld::Tensor>& all_have);
  void OnLost(const Status& reason);
  void OnDeparted(const std::vector<DepartedWorker>& departed);
  bool Knows(int32_t rank, uint32_t path);
  std::shared_ptr<WorkerConnection> Open(const std::shared_ptr<Connection>& connection);
  Status Ask(Connection& connection, ResumeQuery query);
  void Close(Connection& connection);
  bool HasConnectionInUse(int32_t rank);
  void SendToWorkers(const OutgoingFrame& frame);
  void LimitUnsent(uint64_t bytes);
  Membership& membership() { return membership_; }
  int32_t num_workers() const { return options_.num_workers; }
  SummationCounters counters() const;
  std::vector<TensorCounters> tensor_counters() const;
  void ReportArrivals();
  std::vector<WorkerLag> arrival_lags() const { return lags_.workers(); }
  ServerTimeline& timeline() { return timeline_; }

 private:
  static HostMap HostsOf(const Options& options) {
    if (!options.worker_hosts.empty()) return HostMap(options.worker_hosts);
    return HostMap(std::vector<std::string>(options.num_workers));
  }
  Status AddAll(const std::vector<TableEntry>& entries) BYTEPS_REQUIRES(tensors_mutex_);
  Status AddEntry(const TableEntry& entry) BYTEPS_REQUIRES(tensors_mutex_);
  void DropMoved(const PartsMoved& moved) BYTEPS_REQUIRES(tensors_mutex_);
  void GoOnWith(const PartsMoved& moved) BYTEPS_REQUIRES(tensors_mutex_);

  Status Answer(WorkerConnection* worker, const ResumeQuery& query);
  Status FindPart(const FrameHeader& header, Arriving* arriving);
  void Send(ServedTensor* tensor, std::vector<Reply> replies);
  std::vector<std::shared_ptr<WorkerConnection>> IdleConnections(const std::vector<int32_t>& ranks);
  template <typename Function>
  void ForEachPart(Function function);

  const Options options_;
  const HostMap hosts_;
  Membership membership_;
  const AggregationMemory memory_;
  Tally tally_;
  ArrivalLags lags_;
  ServerTimeline timeline_;
  // Tensors are added, never removed: a pointer to one stays valid without the mutex.
  mutable SharedMutex tensors_mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<ServedTensor>> tensors_
      BYTEPS_GUARDED_BY(tensors_mutex_);
  Mutex connections_mutex_;
  // By rank, then by path; also those that are broken. Null: has not come yet.
  std::vector<std::vector<std::shared_ptr<WorkerConnection>>> connections_
      BYTEPS_GUARDED_BY(connections_mutex_);
  uint64_t unsent_bytes_ BYTEPS_GUARDED_BY(connections_mutex_) = 0;  // 0: no limit has been set
};

Status SummationService::Impl::AddEntries(const std::vector<TableEntry>& entries) {
  WriterLock lock(tensors_mutex_);
  return AddAll(entries);
}

// All at once: nobody meets a part that has left and is still said to live here.
Status SummationService::Impl::MoveParts(const PartsMoved& moved) {
  WriterLock lock(tensors_mutex_);
  DropMoved(moved);
  const Status status = AddAll(moved.entries);
  GoOnWith(moved);
  return status;
}

// The good ones of a list are usable, whatever is wrong with the others.
Status SummationService::Impl::AddAll(const std::vector<TableEntry>& entries) {
  Status first_error;
  for (const TableEntry& entry : entries) {
    const Status status = AddEntry(entry);
    if (first_error.ok()) first_error = status;
  }
  return first_error;
}

Status SummationService::Impl::AddEntry(const TableEntry& entry) {
  const bool is_here = std::any_of(
      entry.parts.begin(), entry.parts.end(),
      [this](const PartPlacement& part) { return part.server == options_.server_rank; });
  const auto known = tensors_.find(entry.key);
  const bool was_here =
      known != tensors_.end() && known->second->FindVariant(entry.variant) != nullptr;
  if (!is_here && !was_here) return OkStatus();
  BYTEPS_RETURN_IF_ERROR(CheckEntry(entry, options_.num_workers));
  BYTEPS_RETURN_IF_ERROR(CheckCodec(entry.tensor));
  ServedPart::Options part_options;
  part_options.epoch = options_.epoch;
  part_options.num_workers = options_.num_workers;
  part_options.in_rank_order = options_.in_rank_order;
  part_options.max_lag = options_.max_lag;
  part_options.asks = options_.asks_for_parts;
  part_options.membership = &membership_;
  part_options.hosts = &hosts_;
  part_options.memory = memory_;
  std::unique_ptr<ServedTensor>& tensor = tensors_[entry.key];
  if (tensor == nullptr)
    tensor = std::make_unique<ServedTensor>(entry.tensor.name, options_.server_rank);
  return tensor->AddVariant(entry, part_options);
}

void SummationService::Impl::DropMoved(const PartsMoved& moved) {
  std::set<uint64_t> keys;
  for (const TableEntry& entry : moved.entries) keys.insert(entry.key);
  for (const uint64_t key : keys) {
    const auto tensor = tensors_.find(key);
    if (tensor != tensors_.end()) tensor->second->DropMoved(moved.entries, key, moved.version);
  }
}

void SummationService::Impl::GoOnWith(const PartsMoved& moved) {
  std::set<std::pair<uint64_t, uint32_t>> came_here;
  for (const TableEntry& entry : moved.entries) {
    for (uint32_t part = 0; part < entry.parts.size(); ++part) {
      const PartPlacement& place = entry.parts[part];
      if (place.server == options_.server_rank && place.version == moved.version)
        came_here.emplace(entry.key, part);
    }
  }
  for (const PartsMoved::Part& part : moved.parts) {
    const auto tensor = tensors_.find(part.key);
    if (came_here.count({part.key, part.part}) == 0 || tensor == tensors_.end()) continue;
    const std::shared_ptr<ServedPart> rounds = tensor->second->FindPart(part.part);
    if (rounds != nullptr) rounds->GoOnFrom(part.next_round, part.result_from);
  }
}

// Messages do not say who pushed: texts are made only for pushes that are refused.
Status SummationService::Impl::FindPart(const FrameHeader& header, Arriving* arriving) {
  ReaderLock lock(tensors_mutex_);
  const auto it = tensors_.find(header.key);
  if (it == tensors_.end()) {
    return InvalidArgument("of a tensor that this server has not been told of (key " +
                           std::to_string(header.key) + ")");
  }
  arriving->tensor = it->second.get();
  const auto refused = [&](StatusCode code, const std::string& why) {
    return Status(code, "of tensor \"" + arriving->tensor->name() + "\"" + why);
  };
  const TableEntry* entry = arriving->tensor->FindVariant(header.variant);
  if (entry == nullptr) {
    return refused(StatusCode::kInvalidArgument,
                   ", unknown variant " + std::to_string(header.variant));
  }
  const PartPlacement* place = arriving->tensor->FindPlace(header.variant, header.part);
  arriving->push.entry = entry;
  arriving->rounds = nullptr;
  // It was in flight when its part moved; the worker pushes it again, where it has to.
  if (place != nullptr && header.placement_version < place->version) return OkStatus();
  if (place == nullptr || place->server != options_.server_rank) {
    return refused(StatusCode::kInvalidArgument, ", whose part " + std::to_string(header.part) +
                                                     " does not live on server " +
                                                     std::to_string(options_.server_rank));
  }
  if (header.placement_version != place->version) {
    return refused(StatusCode::kFailedPrecondition,
                   " by placement version " + std::to_string(header.placement_version) +
                       "; valid is " + std::to_string(place->version));
  }
  arriving->rounds = arriving->tensor->FindPart(header.part);
  arriving->is_first_part = arriving->tensor->IsFirstPart(header.part);
  if (header.status != StatusCode::kOk) return OkStatus();  // a text, not a contribution
  const Status checked =
      header.IsResult() ? CheckResult(*entry, header, hosts_) : CheckPush(*entry, header, hosts_);
  return checked.ok() ? checked : refused(checked.code(), checked.message());
}

Status SummationService::Impl::BeginPush(Connection& connection, const FrameHeader& header,
                                         std::shared_ptr<PayloadSink>* sink) {
  ConnectionContext* context = ContextOf(connection);
  const std::string& peer = connection.peer_name();
  if (context == nullptr || connection.peer().role != Role::kWorker ||
      context->worker->rank() < 0 || context->worker->rank() >= options_.num_workers) {
    return InvalidArgument(peer + " is not a worker of this job and may not push");
  }
  if (!context->worker->is_in_use(connection))
    return InvalidArgument(peer + " pushed before it knew what had become of its pushes before");
  if (header.type != FrameType::kPush) {
    return InvalidArgument(peer + " sent a frame of type " +
                           std::to_string(static_cast<int>(header.type)) +
                           "; a server takes pushes only");
  }
  if (header.worker != context->worker->rank()) {
    return InvalidArgument(peer + " pushed as worker " + std::to_string(header.worker));
  }
  if (header.epoch != options_.epoch) {
    return FailedPrecondition(peer + " pushed for epoch " + std::to_string(header.epoch) +
                              "; the job is in epoch " + std::to_string(options_.epoch));
  }
  Arriving& arriving = context->arriving.emplace_back();
  const Status found = FindPart(header, &arriving);
  if (!found.ok()) return Status(found.code(), peer + " made a push " + found.message());
  arriving.push.header = header;
  arriving.push.from = context->worker;
  arriving.push.generation = context->worker->generation();
  arriving.push.begin_time_ns = WallNanos();
  if (header.status != StatusCode::kOk) {
    if (header.payload_bytes > 0) *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  if (arriving.rounds == nullptr) return OkStatus();
  if (header.IsResult()) return arriving.rounds->BeginResult(&arriving.push, sink);
  arriving.tensor->Used(arriving.push.entry);
  std::vector<Reply> replies;
  const Status status = arriving.rounds->Begin(arriving.push, sink, &replies);
  Send(arriving.tensor, std::move(replies));
  return status;
}

void SummationService::Impl::EndPush(ConnectionContext* context) {
  Arriving ended = context->TakeLast();
  const FrameHeader& header = ended.push.header;
  std::vector<Reply> replies;
  const std::shared_ptr<ServedPart> rounds = std::move(ended.rounds);
  if (rounds == nullptr) {
    // A result, and the text of a withdrawal, have taken no credit (protocol rule 9).
    const bool takes_credit = !header.IsResult() && header.status == StatusCode::kOk;
    if (takes_credit) context->worker->AddCredit(header.payload_bytes);
    return;
  }
  if (header.IsResult()) {
    rounds->EndResult(&ended.push, &replies);
    return Send(ended.tensor, std::move(replies));
  }
  const PushOutcome outcome = rounds->End(ended.push, &replies);
  for (Tally* tally : {&tally_, &ended.tensor->tally()}) {
    if (!outcome.counted) {
      ++tally->late_pushes;
      continue;
    }
    ++tally->pushes;
    tally->pushed_bytes += header.payload_offset + header.payload_bytes;
  }
  if (outcome.round_complete) {
    ++tally_.rounds_completed;
    if (ended.is_first_part) ++ended.tensor->tally().rounds_completed;
  }
  if (ended.push.entry->tensor.kind == ExchangeKind::kSum) lags_.Add(outcome.arrivals);
  // Before the replies leave, so that this worker's carries it.
  context->worker->AddCredit(header.payload_bytes);
  Send(ended.tensor, std::move(replies));
  if (!outcome.lacking.empty()) AskFor(header, outcome.lacking);
}

// While gradients are being computed the newest goes first. Workers that are not equally fast then
// push different parts, and sums wait although all links are busy. Where replies leave a link idle,
// what others have pushed should come next. Once for each part and round, so that a push costs the
// same with any number of workers (protocol rule 30).
void SummationService::Impl::AskFor(const FrameHeader& pushed,
                                    const std::vector<int32_t>& lacking) {
  OutgoingFrame frame;
  frame.header.type = FrameType::kWanted;
  frame.header.epoch = options_.epoch;
  frame.header.key = pushed.key;
  frame.header.part = pushed.part;
  frame.header.round = pushed.round;
  for (const std::shared_ptr<WorkerConnection>& worker : IdleConnections(lacking)) {
    frame.header.worker = worker->rank();
    worker->Send(frame);
  }
}

// One of each of `ranks`, if nothing is being sent to it on any.
std::vector<std::shared_ptr<WorkerConnection>> SummationService::Impl::IdleConnections(
    const std::vector<int32_t>& ranks) {
  std::vector<std::shared_ptr<WorkerConnection>> idle;
  MutexLock lock(connections_mutex_);
  for (const int32_t rank : ranks) {
    std::shared_ptr<WorkerConnection> found;
    bool is_idle = true;
    for (const std::shared_ptr<WorkerConnection>& worker : connections_[rank]) {
      if (worker == nullptr) continue;
      found = worker;
      is_idle = is_idle && worker->is_idle();
    }
    if (found != nullptr && is_idle) idle.push_back(std::move(found));
  }
  return idle;
}

void SummationService::Impl::EndWithdrawal(ConnectionContext* context, const std::string& reason) {
  Arriving ended = context->TakeLast();
  const Push& push = ended.push;
  std::vector<Reply> replies;
  const std::shared_ptr<ServedPart> rounds = std::move(ended.rounds);
  if (rounds == nullptr) return;
  rounds->Withdraw(push.header.worker, *push.entry, push.header.round,
                   Status(push.header.status, reason), &replies);
  Send(ended.tensor, std::move(replies));
}

void SummationService::Impl::Send(ServedTensor* tensor, std::vector<Reply> replies) {
  for (Reply& reply : replies) {
    FrameHeader& header = reply.frame.header;
    header.send_time_ns = WallNanos();
    timeline_.Add(tensor->name(), reply);
    for (Tally* tally : {&tally_, &tensor->tally()}) {
      ++tally->replies;
      if (header.status == StatusCode::kOk) tally->replied_bytes += header.payload_bytes;
    }
    reply.to->SendReply(std::move(reply.frame), reply.generation);
  }
}

bool SummationService::Impl::Knows(int32_t rank, uint32_t path) {
  MutexLock lock(connections_mutex_);
  return path < connections_[rank].size() && connections_[rank][path] != nullptr;
}

std::shared_ptr<WorkerConnection> SummationService::Impl::Open(
    const std::shared_ptr<Connection>& connection) {
  MutexLock lock(connections_mutex_);
  const Hello& peer = connection->peer();
  std::vector<std::shared_ptr<WorkerConnection>>& paths = connections_[peer.rank];
  if (paths.size() <= peer.path) paths.resize(peer.path + 1);
  std::shared_ptr<WorkerConnection>& worker = paths[peer.path];
  if (worker == nullptr) worker = std::make_shared<WorkerConnection>(*connection);
  if (unsent_bytes_ > 0) connection->LimitUnsent(unsent_bytes_);
  worker->Open(connection);
  return worker;
}

Status SummationService::Impl::Ask(Connection& connection, ResumeQuery query) {
  const std::shared_ptr<WorkerConnection>& worker = ContextOf(connection)->worker;
  std::optional<ResumeQuery> due;
  BYTEPS_RETURN_IF_ERROR(worker->Ask(connection, std::move(query), &due));
  return due.has_value() ? Answer(worker.get(), *due) : OkStatus();
}

void SummationService::Impl::Close(Connection& connection) {
  const std::shared_ptr<WorkerConnection>& worker = ContextOf(connection)->worker;
  const std::optional<ResumeQuery> due = worker->Close(connection);
  if (!due.has_value()) return;
  const Status status = Answer(worker.get(), *due);
  if (!status.ok()) worker->Disconnect(status);
}

bool SummationService::Impl::HasConnectionInUse(int32_t rank) {
  MutexLock lock(connections_mutex_);
  const auto& paths = connections_[rank];
  return std::any_of(paths.begin(), paths.end(),
                     [](const auto& worker) { return worker != nullptr && worker->is_in_use(); });
}

// Nothing of the worker's pushes arrives any more over the connection that broke.
Status SummationService::Impl::Answer(WorkerConnection* worker, const ResumeQuery& query) {
  ResumeAnswer answer;
  std::vector<std::pair<ServedTensor*, std::vector<Reply>>> lost;
  for (const ResumeQuery::Push& push : query.pushes) {
    ServedTensor* tensor = nullptr;
    std::shared_ptr<ServedPart> rounds;
    {
      ReaderLock lock(tensors_mutex_);
      const auto it = tensors_.find(push.key);
      if (it != tensors_.end()) tensor = it->second.get();
      if (tensor != nullptr) rounds = tensor->FindPart(push.part);
      // It asked before it knew.
      if (rounds == nullptr && tensor != nullptr && tensor->HasMoved(push.part)) continue;
    }
    if (rounds == nullptr) {
      return InvalidArgument(worker->name() + " asks for part " + std::to_string(push.part) +
                             " of a tensor that has none here (key " + std::to_string(push.key) +
                             ")");
    }
    std::optional<uint64_t> received_bytes;
    std::vector<Reply> replies;
    BYTEPS_RETURN_IF_ERROR(
        rounds->Resume(worker->shared_from_this(), push.round, &received_bytes, &replies));
    if (received_bytes.has_value())
      answer.incomplete.push_back({push.key, push.part, push.round, *received_bytes});
    lost.emplace_back(tensor, std::move(replies));
  }
  // Before the replies: it is what the worker waits for.
  worker->Send(ControlFrame(answer));
  for (auto& [tensor, replies] : lost) Send(tensor, std::move(replies));
  return OkStatus();
}

void SummationService::Impl::SendToWorkers(const OutgoingFrame& frame) {
  std::vector<std::shared_ptr<WorkerConnection>> one_of_each;
  {
    MutexLock lock(connections_mutex_);
    for (const auto& paths : connections_) {
      const auto found = std::find_if(paths.begin(), paths.end(), [](const auto& worker) {
        return worker != nullptr && worker->is_in_use();
      });
      if (found != paths.end()) one_of_each.push_back(*found);
    }
  }
  for (const std::shared_ptr<WorkerConnection>& worker : one_of_each) worker->Send(frame);
}

void SummationService::Impl::ReportArrivals() {
  const ArrivalReport report = lags_.TakeReport();
  if (!report.rows.empty()) SendToWorkers(ControlFrame(report));
}

void SummationService::Impl::LimitUnsent(uint64_t bytes) {
  MutexLock lock(connections_mutex_);
  unsent_bytes_ = bytes;
  for (const auto& paths : connections_) {
    for (const std::shared_ptr<WorkerConnection>& worker : paths) {
      if (worker != nullptr) worker->LimitUnsent(bytes);
    }
  }
}

// What the replies have not taken along.
void SummationService::Impl::SendCredit(WorkerConnection* worker) {
  if (worker->credit() < options_.least_credit_frame) return;
  const uint64_t credit = worker->TakeCredit();
  if (credit == 0) return;  // a reply has taken it along meanwhile
  OutgoingFrame frame;
  frame.header.type = FrameType::kCredit;
  frame.header.epoch = options_.epoch;
  frame.header.worker = worker->rank();
  frame.header.credit_bytes = credit;
  worker->Send(std::move(frame));
}

template <typename Function>
void SummationService::Impl::ForEachPart(Function function) {
  std::vector<std::pair<ServedTensor*, std::shared_ptr<ServedPart>>> parts;
  {
    ReaderLock lock(tensors_mutex_);
    for (const auto& [key, tensor] : tensors_) {
      for (const auto& [part, rounds] : tensor->parts()) parts.emplace_back(tensor.get(), rounds);
    }
  }
  for (const auto& [tensor, rounds] : parts) {
    std::vector<Reply> replies;
    function(rounds.get(), &replies);
    Send(tensor, std::move(replies));
  }
}

void SummationService::Impl::OnResultsHeld(const std::vector<RoundsHeld::Tensor>& all_have) {
  ReaderLock lock(tensors_mutex_);
  for (const RoundsHeld::Tensor& tensor : all_have) {
    const auto known = tensors_.find(tensor.key);
    if (known == tensors_.end()) continue;
    for (const auto& [part, rounds] : known->second->parts())
      rounds->OnResultsHeld(tensor.next_round);
  }
}

void SummationService::Impl::OnLost(const Status& reason) {
  membership_.Lose(reason);
  ForEachPart([](ServedPart* rounds, std::vector<Reply>* replies) { rounds->OnLost(replies); });
}

void SummationService::Impl::OnDeparted(const std::vector<DepartedWorker>& departed) {
  ForEachPart([&](ServedPart* rounds, std::vector<Reply>* replies) {
    rounds->OnDeparted(departed, replies);
  });
}

SummationCounters SummationService::Impl::counters() const {
  SummationCounters counters;
  counters.pushes = tally_.pushes;
  counters.pushed_bytes = tally_.pushed_bytes;
  counters.late_pushes = tally_.late_pushes;
  counters.replies = tally_.replies;
  counters.replied_bytes = tally_.replied_bytes;
  counters.rounds_completed = tally_.rounds_completed;
  counters.accumulator_bytes = *memory_.held;
  return counters;
}

std::vector<TensorCounters> SummationService::Impl::tensor_counters() const {
  std::vector<TensorCounters> all;
  {
    ReaderLock lock(tensors_mutex_);
    for (const auto& [key, tensor] : tensors_) {
      const Tally& tally = tensor->tally();
      all.push_back({tensor->last_used(), tally.pushes, tally.pushed_bytes, tally.replied_bytes,
                     tally.rounds_completed});
    }
  }
  std::sort(all.begin(), all.end(), [](const TensorCounters& a, const TensorCounters& b) {
    return a.tensor.name < b.tensor.name;
  });
  return all;
}

SummationService::SummationService(const Options& options)
    : impl_(std::make_unique<Impl>(options)) {}

SummationService::~SummationService() = default;

Status SummationService::AddEntries(const std::vector<TableEntry>& entries) {
  return impl_->AddEntries(entries);
}

void SummationService::OnWorkersLeft(const std::vector<int32_t>& ranks) {
  std::vector<DepartedWorker> departed;
  for (const int32_t rank : ranks) {
    if (rank < 0 || rank >= impl_->num_workers()) continue;
    impl_->membership().Leave(rank);
    departed.push_back({rank, /*cut_off=*/!impl_->HasConnectionInUse(rank)});
  }
  impl_->OnDeparted(departed);
}

void SummationService::OnWorkerLost(int32_t rank, const Status& reason) {
  LogDebug("worker " + std::to_string(rank) + " is lost: " + reason.ToString());
  impl_->OnLost(reason);
}

void SummationService::OnResultsHeld(const std::vector<RoundsHeld::Tensor>& all_have) {
  impl_->OnResultsHeld(all_have);
}

Status SummationService::MoveParts(const PartsMoved& moved) { return impl_->MoveParts(moved); }

SummationCounters SummationService::counters() const { return impl_->counters(); }

std::vector<TensorCounters> SummationService::tensor_counters() const {
  return impl_->tensor_counters();
}

void SummationService::ReportArrivals() { impl_->ReportArrivals(); }

std::vector<WorkerLag> SummationService::arrival_lags() const { return impl_->arrival_lags(); }

ServerTimeline& SummationService::timeline() { return impl_->timeline(); }

void SummationService::SendToWorkers(const OutgoingFrame& frame) { impl_->SendToWorkers(frame); }

void SummationService::LimitUnsent(uint64_t bytes) { impl_->LimitUnsent(bytes); }

void SummationService::OnOpen(const std::shared_ptr<Connection>& connection) {
  connection->set_context(std::make_shared<ConnectionContext>(impl_->Open(connection)));
}

Status SummationService::CheckReturn(const Hello& hello) const {
  if (!hello.again) return OkStatus();
  if (!impl_->Knows(hello.rank, hello.path)) {
    return FailedPrecondition("this server does not know " + hello.PeerName() +
                              ", it has been started anew");
  }
  if (impl_->membership().HasDeparted(hello.rank))
    return FailedPrecondition(hello.PeerName() + " is gone, and cannot come back to a running job");
  return OkStatus();
}

Status SummationService::OnHeader(Connection& connection, const FrameHeader& header,
                                  std::shared_ptr<PayloadSink>* sink) {
  if (header.type == FrameType::kControl) {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  return impl_->BeginPush(connection, header, sink);
}

Status SummationService::OnFrame(Connection& connection, const FrameHeader& header,
                                 std::shared_ptr<PayloadSink> sink) {
  if (header.type == FrameType::kControl) {
    ControlMessage message;
    if (ContextOf(connection) == nullptr || sink == nullptr ||
        !DecodeControl(static_cast<BufferSink&>(*sink).Take(), &message).ok() ||
        !std::holds_alternative<ResumeQuery>(message))
      return InvalidArgument(connection.peer_name() + " sent a message that is not understood");
    return impl_->Ask(connection, std::move(std::get<ResumeQuery>(message)));
  }
  if (header.status != StatusCode::kOk && sink != nullptr) {
    impl_->EndWithdrawal(ContextOf(connection), static_cast<BufferSink&>(*sink).Take());
    return OkStatus();
  }
  sink.reset();  // all its bytes have been taken in
  if (header.payload_bytes == 0) {
    std::shared_ptr<PayloadSink> no_sink;
    BYTEPS_RETURN_IF_ERROR(impl_->BeginPush(connection, header, &no_sink));
  }
  if (header.status != StatusCode::kOk) {
    impl_->EndWithdrawal(ContextOf(connection), "");
    return OkStatus();
  }
  impl_->EndPush(ContextOf(connection));
  return OkStatus();
}

void SummationService::OnDrained(Connection& connection) {
  if (ConnectionContext* context = ContextOf(connection)) impl_->SendCredit(context->worker.get());
}

// A connection that breaks may come again. Whether its worker is dead is the coordinator's to say.
void SummationService::OnClosed(Connection& connection, const Status& reason) {
  const int32_t rank = connection.peer().rank;
  if (ContextOf(connection) == nullptr) return;
  impl_->Close(connection);
  // This server is stopping: the workers are not gone, and the replies could not be sent anyway.
  if (reason.code() == StatusCode::kCancelled) return;
  // What this side has closed is not let in again.
  if (reason.code() != StatusCode::kUnavailable) {
    LogWarning("nothing more is taken from " + connection.peer_name() + ": " + reason.message(),
               {"peer_refused", {{"peer", connection.peer_name()}}});
    impl_->membership().Disconnect(rank, reason);
  }
  if (impl_->membership().HasDeparted(rank)) impl_->OnDeparted({{rank, /*cut_off=*/true}});
}

}  // namespace byteps
