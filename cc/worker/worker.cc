#include "cc/worker/worker.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cc/base/clock.h"
#include "cc/base/fork.h"
#include "cc/base/logging.h"
#include "cc/codec/choice.h"
#include "cc/codec/narrow.h"
#include "cc/codec/speed.h"
#include "cc/van/buffer_sink.h"
#include "cc/worker/worker_actions.h"

namespace byteps {
namespace {

constexpr double kWatchSeconds = 0.5;
// Bytes in a second. Over faster links CPUs take as long to narrow a tensor as that saves.
constexpr uint64_t kFastLink = 625'000'000;
// Not a link that is not known yet: at 100 Gbit/s narrow gradients make a step longer by half.
bool IsSlow(uint64_t bytes_per_second) {
  return bytes_per_second > 0 && bytes_per_second <= kFastLink;
}
// The coordinator answers a goodbye at once; a process on its way out does not wait long for a dead
// one.
constexpr auto kGoodbyePatience = std::chrono::seconds(5);
// After a failure even less: the coordinator may be what does not answer.
constexpr auto kGoodbyePatienceAfterFailure = std::chrono::seconds(1);
constexpr auto kGoodbyeLook = std::chrono::milliseconds(100);
// Parts of one tensor that a server may ask for before they are there.
constexpr size_t kMostWanted = 4096;
constexpr uint64_t kLeastOfAStep = 4096;

// In the first two steps servers allocate: sums of a round are kept while the next one is under
// way. What workers agree upon before the first step may have been exchanged several times by then.
bool RepeatsAStep(const Exchange& exchange) {
  const TensorDescription& tensor = exchange.request.tensor;
  return exchange.round > 1 && tensor.kind == ExchangeKind::kSum &&
         tensor.ByteCount() >= kLeastOfAStep;
}

}  // namespace

Worker::Worker(const JobDescription& job, int32_t rank, Timeline* timeline)
    : job_(job),
      rank_(rank),
      local_(job.num_workers() == 1 && job.num_servers() == 0),
      can_be_narrow_(job.options.compression.narrow &&
                     job.options.network.transport == Transport::kTcp && job.HasLinks()),
      may_be_narrow_(can_be_narrow_ && IsSlow(job.options.flow.link_bytes_per_second)),
      keeps_results_(job.MayLoseServers()),
      timeline_(timeline),
      queue_(job.options.flow.Credit(0), job.options.flow.CreditKeptBack()),
      link_meter_(job.TunesItself() ? std::make_unique<LinkMeter>() : nullptr) {}

Worker::~Worker() { Stop(); }

Status Worker::Start() {
  if (rank_ < 0 || rank_ >= job_.num_workers()) {
    return InvalidArgument("rank " + std::to_string(rank_) + " is not one of the " +
                           std::to_string(job_.num_workers()) + " workers");
  }
  if (local_) return OkStatus();
  if (job_.num_servers() == 0)
    return InvalidArgument("a job of several workers needs at least one server");
  van_ = NewVan(VanOptionsOf(job_.options));
  PreparePaths();
  coordinator_ = std::make_unique<CoordinatorLink>(
      [this](ControlMessage message) { OnControl(std::move(message)); },
      [this](const Status& reason) { Fail(reason, LostPeer{Role::kCoordinator, 0}); });
  BYTEPS_RETURN_IF_ERROR(van_->Expect(1 + job_.num_servers() * job_.PathsPerServer()));
  BYTEPS_RETURN_IF_ERROR(coordinator_->Start(van_.get(), job_, Role::kWorker, rank_));
  BYTEPS_RETURN_IF_ERROR(ConnectToServers());
  watch_.Start("byteps-watch", kWatchSeconds, [this] { Watch(); });
  return OkStatus();
}

bool Worker::CoordinatorIsLost() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return coordinator_is_lost_;
}

Status Worker::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

std::optional<LostPeer> Worker::lost_peer() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return lost_peer_;
}

WorkerCounters Worker::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  WorkerCounters counters = counters_;
  counters.credit_bytes = queue_.credit_bytes();
  counters.unanswered_bytes = queue_.unanswered();
  counters.in_flight_bytes = queue_.bytes_on_the_way();
  counters.queued_parts = queue_.size();
  counters.steps = step_meter_.counters();
  if (counters.started_exchanges > counters.exchanges)
    counters.exchanging_ns += MonotonicNanos() - exchanging_since_ns_;
  for (size_t server = 0; server < servers_.size(); ++server) {
    for (size_t path = 0; path < servers_[server].paths.size(); ++path) {
      const Path& from = servers_[server].paths[path];
      counters.paths.push_back({static_cast<int32_t>(server), static_cast<uint32_t>(path),
                                from.pushed_bytes, from.received_bytes, from.bytes_on_the_way,
                                from.reconnects});
    }
  }
  if (van_ != nullptr) counters.van = van_->counters();
  return counters;
}

std::shared_ptr<MemoryRegistry> Worker::memory_registry() const {
  return van_ == nullptr ? nullptr : van_->memory_registry();
}

void Worker::Enqueue(ExchangeRequest request) {
  uint64_t start_step = 0;
  const Status status = CheckTerms(&request, &start_step);
  if (!status.ok()) return request.done(status);
  if (local_) return FinishLocally(request);
  const BlockCodec* const narrow =
      NarrowFormOf(request.tensor, request.input, request.tensor.ElementCount());
  const auto exchange = std::make_shared<Exchange>(std::move(request));
  exchange->narrow = narrow;
  Begin(exchange, start_step);
}

void Worker::Enqueue(PartedExchangeRequest request) {
  uint64_t start_step = 0;
  const Status status = CheckTerms(&request, &start_step);
  if (!status.ok()) return request.done(status);
  Begin(std::make_shared<Exchange>(std::move(request)), start_step);
}

// Chooses the codec, too, and the round that it begins with.
Status Worker::CheckTerms(ExchangeTerms* terms, uint64_t* start_step) const {
  BYTEPS_RETURN_IF_ERROR(CheckNotForked());
  BYTEPS_RETURN_IF_ERROR(ChooseCodec(&terms->tensor, start_step));
  BYTEPS_RETURN_IF_ERROR(terms->tensor.Validate(job_.num_workers()));
  return CheckMayDrop(terms->tensor);
}

void Worker::Begin(const std::shared_ptr<Exchange>& exchange, uint64_t start_step) {
  Status status;
  {
    Actions actions(this);
    std::lock_guard<std::mutex> lock(mutex_);
    Key& key = FindOrAddKey(exchange->request.tensor.name);
    status = CheckMayBegin(key, exchange->request.tensor);
    if (key.next_round < start_step) exchange->request.tensor.codec.clear();
    if (status.ok()) return BeginRound(exchange, &key, &actions);
  }
  exchange->request.done(status);
}

Status Worker::CheckMayBegin(const Key& key, const TensorDescription& tensor) const {
  const Status refusal = Refusal();
  if (!refusal.ok()) {
    return Status(refusal.code(), "tensor \"" + key.name + "\", round " +
                                      std::to_string(key.next_round) + ": " + refusal.message());
  }
  if (key.live == nullptr) return OkStatus();
  return FailedPrecondition(
      "tensor \"" + key.name + "\" is in flight already (" + key.live->request.tensor.ToString() +
      ", round " + std::to_string(key.live->round) + ") and was given again as " +
      tensor.ToString() +
      ": two tensors in flight need two names, or an order (a control dependency) between them");
}

void Worker::BeginRound(const std::shared_ptr<Exchange>& exchange, Key* key, Actions* actions) {
  ExchangeTerms& terms = exchange->request;
  if (key->number == 0) key->number = order_.NumberNewName();
  const bool is_early = IsForwardOrder(terms.priority);
  terms.priority = order_.PriorityOf(key->number, terms.priority);
  const int64_t now = MonotonicNanos();
  CountStart(now);
  exchange->Begin(key->next_round++, now);
  exchange->step = step_meter_.Begin(key->name, !is_early && !exchange->is_awaited_elsewhere);
  if (!exchange->by_parts) step_meter_.NoteInput(exchange->step, now);
  key->live = exchange;
  repeats_ = repeats_ || RepeatsAStep(*exchange);
  exchange->is_early = is_early;
  if (is_early && order_.CompletesStep(key->number)) CompleteStep(*exchange);
  exchange->trace = NewTrace(terms, exchange->round);
  Variant& variant = DeclaredVariant(*key, terms.tensor);
  if (local_) PlaceAlone(&variant);
  DispatchIfPlaced(*key, actions);
  SendDeclarations(actions);
}

// What has not left goes in forward order.
void Worker::CompleteStep(const Exchange& last) {
  uint64_t late_bytes = last.request.tensor.ByteCount();
  queue_.Rearrange([&](const PartTask& task) {
    if (!task.exchange->is_early) return task.priority;
    late_bytes += task.bytes;
    return order_.PriorityInForwardOrder(task.exchange->request.priority);
  });
  order_.NoteStep(late_bytes);
  for (const auto& [name, key] : keys_by_name_) {
    Exchange* const live = key->live.get();
    if (live == nullptr || !live->is_early) continue;
    live->is_early = false;
    live->request.priority = order_.PriorityInForwardOrder(live->request.priority);
  }
}

int32_t Worker::PriorityOf(const Exchange& exchange, uint32_t part) const {
  const int32_t priority = exchange.request.priority;
  return exchange.is_early ? order_.PriorityOfPart(priority, exchange.entry->key, part) : priority;
}

// All workers choose alike: what differs, they find out when they exchange the tensor.
Status Worker::ChooseCodec(TensorDescription* tensor, uint64_t* start_step) const {
  if (tensor->codec.empty()) return OkStatus();
  CodecChoice choice;
  Status status = ParseChoice(tensor->codec, &choice);
  if (status.ok() && choice.codec != kAutoCodec) {
    tensor->codec = choice.codec;
    status = NameCodecInJob(*tensor, job_.num_workers(), &choice.codec);
  }
  if (!status.ok())
    return Status(status.code(), "tensor \"" + tensor->name + "\": " + status.message());
  tensor->codec = std::move(choice.codec);
  *start_step = choice.start_step;
  // What cannot be compressed is refused at any length.
  BYTEPS_RETURN_IF_ERROR(tensor->Validate(job_.num_workers()));
  const bool is_sum = tensor->kind == ExchangeKind::kSum;
  if (is_sum && tensor->ByteCount() < job_.options.compression.min_compress_bytes)
    tensor->codec.clear();
  return OkStatus();
}

const BlockCodec* Worker::NarrowFormOf(const TensorDescription& tensor, const void* input,
                                       uint64_t elements) const {
  const bool is_long = tensor.ByteCount() >= job_.options.compression.min_compress_bytes;
  if (!may_be_narrow_ || input == nullptr || !is_long || !MayBeNarrow(tensor)) return nullptr;
  return byteps::NarrowFormOf(static_cast<const float*>(input), elements);
}

// A server of this host reads what is sent from memory, which costs less than to narrow it.
void Worker::SetNarrow(Exchange* exchange, uint32_t part, const BlockCodec* form) {
  if (form == nullptr || !MayBeNarrow(exchange->entry->tensor)) return;
  const ServerLink& server = servers_[exchange->places[part].server];
  if (server.host != job_.worker_hosts[rank_]) exchange->narrow_parts[part] = form;
}

Status Worker::CheckMayDrop(const TensorDescription& tensor) const {
  if (tensor.backup_workers == 0 || !job_.options.deterministic) return OkStatus();
  return InvalidArgument(
      "tensor \"" + tensor.name +
      "\": backup_workers lets the time of arrival decide what is in an average, "
      "which deterministic mode forbids; set one of them only");
}

void Worker::Declare(std::vector<TensorDescription> tensors) {
  if (local_) return;
  Actions actions(this);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!Refusal().ok()) return;
  for (TensorDescription& tensor : tensors) {
    uint64_t start_step = 0;
    if (!ChooseCodec(&tensor, &start_step).ok() || !tensor.Validate(job_.num_workers()).ok())
      continue;
    Key& key = FindOrAddKey(tensor.name);
    if (key.next_round < start_step) tensor.codec.clear();
    DeclaredVariant(key, tensor);
  }
  SendDeclarations(&actions);
}

void Worker::SendPart(const std::shared_ptr<Exchange>& exchange, PartRequest request) {
  const BlockCodec* const narrow =
      request.input_is_encoded ? nullptr
                               : NarrowFormOf(exchange->request.tensor, request.input,
                                              exchange->entry->parts[request.part].element_count);
  Actions actions(this);
  std::lock_guard<std::mutex> lock(mutex_);
  if (exchange->finished) return;
  const uint32_t part = request.part;
  exchange->part_requests[part] = std::move(request);
  SetNarrow(exchange.get(), part, narrow);
  queue_.Push({exchange, part, exchange->PushBytes(part, rank_), PriorityOf(*exchange, part)});
  const Key& key = FindOrAddKey(exchange->request.tensor.name);
  if (key.wanted.round == exchange->round && key.wanted.parts.count(part) > 0)
    queue_.Prefer(exchange.get(), part);
  Pump(&actions);
}

void Worker::End(const std::shared_ptr<Exchange>& exchange, const Status& status) {
  Actions actions(this);
  std::lock_guard<std::mutex> lock(mutex_);
  Finish(exchange, status, &actions);
}

void Worker::NoteInput(const std::shared_ptr<Exchange>& exchange) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!exchange->finished) step_meter_.NoteInput(exchange->step, MonotonicNanos());
}

void Worker::NoteBatch(int64_t waited_ns, uint64_t samples) {
  std::lock_guard<std::mutex> lock(mutex_);
  step_meter_.NoteBatch(waited_ns, samples, MonotonicNanos());
}

void Worker::NoteStage(const std::shared_ptr<Exchange>& exchange, uint32_t part,
                       int64_t PartTrace::* end_of_stage) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (exchange->trace == nullptr || exchange->finished) return;
  exchange->trace->parts[part].*end_of_stage = WallNanos();
}

Status Worker::Attach(const std::shared_ptr<WorkerCompanion>& companion) {
  std::vector<Relay> relayed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    BYTEPS_RETURN_IF_ERROR(Refusal());
    if (companion_ != nullptr) {
      return FailedPrecondition("worker " + std::to_string(rank_) +
                                " exchanges the tensors of another GPU already: give each GPU a "
                                "worker of its own");
    }
    companion_ = companion;
    relayed.swap(relayed_);
  }
  for (const Relay& relay : relayed) companion->OnRelay(relay.from, relay.bytes);
  return OkStatus();
}

void Worker::RelayTo(int32_t worker, std::string bytes) {
  coordinator_->Send(Relay{rank_, worker, std::move(bytes)});
}

void Worker::OnRelay(const Relay& relay) {
  std::shared_ptr<WorkerCompanion> companion;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    companion = companion_;
    if (companion == nullptr) relayed_.push_back(relay);
  }
  if (companion != nullptr) companion->OnRelay(relay.from, relay.bytes);
}

void Worker::Stop() {
  std::shared_ptr<WorkerCompanion> companion;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stopping_) companion = companion_;
  }
  if (companion != nullptr) companion->OnStop();
  {
    Actions actions(this);
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    FinishAll(Cancelled("tf_byteps.shutdown() was called while the tensor was in flight"),
              &actions);
  }
  watch_.Stop();
  if (local_ || van_ == nullptr) {
    return;
  }
  // The coordinator may only be stopped: it must not take this for a good end when it goes on.
  if (coordinator_->connected() && !CoordinatorIsLost()) {
    coordinator_->Send(Goodbye{{rank_}});
    std::unique_lock<std::mutex> lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() +
                          (failure_.ok() ? kGoodbyePatience : kGoodbyePatienceAfterFailure);
    while (!left_ && coordinator_->connected() && std::chrono::steady_clock::now() < deadline)
      goodbye_answered_.wait_for(lock, kGoodbyeLook);
  }
  coordinator_->Stop();
  for (ServerLink& server : servers_) {
    for (Path& path : server.paths) path.reconnector->Stop();
  }
  van_->Stop();
}

std::unique_ptr<ExchangeTrace> Worker::NewTrace(const ExchangeTerms& request,
                                                uint64_t round) const {
  if (timeline_ == nullptr) return nullptr;
  return timeline_->NewTrace(request.tensor, round, request.priority);
}

Status Worker::Refusal() const {
  if (stopping_) return Cancelled("tf_byteps has been shut down; call tf_byteps.init() first");
  return failure_;
}

Worker::Key& Worker::FindOrAddKey(const std::string& name) {
  std::unique_ptr<Key>& key = keys_by_name_[name];
  if (key == nullptr) {
    key = std::make_unique<Key>();
    key->name = name;
  }
  return *key;
}

Worker::Variant& Worker::FindOrAddVariant(Key& key, const TensorDescription& tensor) {
  for (Variant& variant : key.variants) {
    if (variant.tensor.SameExchangeAs(tensor)) return variant;
  }
  key.variants.emplace_back();
  key.variants.back().tensor = tensor;
  return key.variants.back();
}

Worker::Variant& Worker::DeclaredVariant(Key& key, const TensorDescription& tensor) {
  Variant& variant = FindOrAddVariant(key, tensor);
  if (!variant.is_declared) undeclared_.push_back(tensor);
  variant.is_declared = true;
  return variant;
}

// One request at a time: what is declared meanwhile goes together in the next.
void Worker::SendDeclarations(Actions* actions) {
  if (declare_request_ != 0 || undeclared_.empty()) return;
  DeclareRequest request;
  request.request_id = declare_request_ = next_request_++;
  request.tensors = declaring_ = std::move(undeclared_);
  undeclared_.clear();
  actions->messages.push_back(std::move(request));
}

Status Worker::OnDeclareReply(DeclareReply reply, Actions* actions) {
  if (reply.request_id != declare_request_ || reply.results.size() != declaring_.size()) {
    return Internal("the scheduler answered a declaration that was not made");
  }
  declare_request_ = 0;
  const std::vector<TensorDescription> declared = std::move(declaring_);
  declaring_.clear();
  for (size_t i = 0; i < declared.size(); ++i) {
    Key& key = FindOrAddKey(declared[i].name);
    const std::shared_ptr<Exchange> live = key.live;
    const bool is_waiting = live != nullptr && live->entry == nullptr &&
                            live->request.tensor.SameExchangeAs(declared[i]);
    DeclareResult& result = reply.results[i];
    if (!result.status.ok()) {
      key.variants.erase(
          std::remove_if(key.variants.begin(), key.variants.end(),
                         [&](const Variant& v) { return v.tensor.SameExchangeAs(declared[i]); }),
          key.variants.end());
      if (is_waiting) Finish(live, result.status, actions);
      continue;
    }
    BYTEPS_RETURN_IF_ERROR(CheckEntry(result.entry, job_.num_workers(), job_.num_servers()));
    if (result.entry.tensor.name != key.name || !result.entry.tensor.SameExchangeAs(declared[i]))
      return Internal("the scheduler placed another tensor than \"" + key.name + "\"");
    keys_[result.entry.key] = &key;
    Variant& variant = FindOrAddVariant(key, declared[i]);
    variant.entry = std::make_shared<const TableEntry>(std::move(result.entry));
    RaiseCredit(*variant.entry);
    if (is_waiting) DispatchIfPlaced(key, actions);
  }
  SendDeclarations(actions);
  return OkStatus();
}

void Worker::DispatchIfPlaced(Key& key, Actions* actions) {
  const std::shared_ptr<Exchange> live = key.live;
  if (holds_rounds_ || live == nullptr || live->entry != nullptr) return;
  const Variant& variant = FindOrAddVariant(key, live->request.tensor);
  const std::shared_ptr<const TableEntry>& entry = variant.EntryFor(live->round);
  if (entry == nullptr) return;
  live->Place(entry);
  RenewFeedback(*entry, job_.epoch, &key.feedback, &key.restored);
  live->feedback = key.feedback;
  Dispatch(live, actions);
}

void Worker::HoldRounds(Actions* actions) {
  holds_rounds_ = true;
  RoundsHeld held;
  for (const auto& [id, key] : keys_) {
    const bool waits = key->live != nullptr && key->live->entry == nullptr;
    held.tensors.push_back({id, waits ? key->live->round : key->next_round});
  }
  actions->messages.push_back(std::move(held));
}

Status Worker::OnRetune(Retune retune, Actions* actions) {
  if (retune.credit_bytes > 0) {
    queue_.SetCredit(retune.credit_bytes);
    is_tuned_ = true;
  }
  unsent_bytes_ = retune.unsent_bytes;
  for (ServerLink& server : servers_) {
    for (Path& path : server.paths) {
      if (path.connection != nullptr) path.connection->LimitUnsent(unsent_bytes_);
    }
  }
  for (NewCut& cut : retune.cuts) {
    BYTEPS_RETURN_IF_ERROR(CheckEntry(cut.entry, job_.num_workers(), job_.num_servers()));
    Key& key = FindOrAddKey(cut.entry.tensor.name);
    keys_[cut.entry.key] = &key;
    Variant& variant = FindOrAddVariant(key, cut.entry.tensor);
    variant.first_round_of_new_cut = cut.first_round;
    variant.new_cut = std::make_shared<const TableEntry>(std::move(cut.entry));
  }
  holds_rounds_ = false;
  for (const auto& [name, key] : keys_by_name_) DispatchIfPlaced(*key, actions);
  Pump(actions);
  return OkStatus();
}

void Worker::MeasureLink(uint64_t taken_in, Actions* actions) {
  if (link_meter_ == nullptr) return;
  if (repeats_) link_meter_->Note(MonotonicNanos(), taken_in, queue_.size() > 0);
  LinkReport report;
  report.bytes_per_second = job_.options.flow.link_bytes_per_second;
  if (report.bytes_per_second == 0) {
    if (!link_meter_->is_complete()) return;
    report.bytes_per_second = link_meter_->bytes_per_second();
  }
  for (const ServerLink& server : servers_) {
    for (const Path& path : server.paths) {
      if (path.connection == nullptr) continue;
      const uint64_t round_trip_ns = path.connection->round_trip_ns();
      report.round_trip_ns = std::max(report.round_trip_ns, round_trip_ns);
    }
  }
  report.codec_bytes_per_second = Int8BytesPerSecond();
  may_be_narrow_ = can_be_narrow_ && IsSlow(report.bytes_per_second);
  actions->messages.push_back(report);
  link_meter_.reset();
}

void Worker::RaiseCredit(const TableEntry& entry) {
  if (is_tuned_) return;
  for (const PartPlacement& part : entry.parts) {
    const uint64_t bytes = part.element_count * DTypeSize(entry.tensor.dtype);
    queue_.RaiseCredit(job_.options.flow.Credit(bytes));
  }
}

// Without a coordinator: one part, that of no server.
void Worker::PlaceAlone(Variant* variant) {
  undeclared_.clear();
  if (variant->entry != nullptr) return;
  TableEntry entry;
  entry.tensor = variant->tensor;
  entry.key = KeyOfName(variant->tensor.name);
  entry.parts.push_back({static_cast<uint64_t>(variant->tensor.ElementCount()), -1});
  variant->entry = std::make_shared<const TableEntry>(std::move(entry));
}

void Worker::Dispatch(const std::shared_ptr<Exchange>& exchange, Actions* actions) {
  if (exchange->by_parts) return actions->placed.push_back(exchange);
  const std::vector<PartPlacement>& parts = exchange->entry->parts;
  for (uint32_t part = 0; part < parts.size(); ++part) {
    SetNarrow(exchange.get(), part, exchange->narrow);
    queue_.Push({exchange, part, exchange->PushBytes(part, rank_), PriorityOf(*exchange, part)});
  }
  const Key& key = FindOrAddKey(exchange->request.tensor.name);
  if (key.wanted.round == exchange->round) {
    for (const uint32_t part : key.wanted.in_order) queue_.Prefer(exchange.get(), part);
  }
  Pump(actions);
}

void Worker::Pump(Actions* actions) {
  PartTask task;
  while (queue_.Pop(&task)) {
    if (task.exchange->finished) {
      queue_.ReturnCredit(task.bytes);
      continue;
    }
    if (task.exchange->is_early) order_.NoteEarly(task.bytes);
    SendPush(std::move(task), actions);
  }
  MeasureLink(0, actions);
}

Status Worker::FindReplied(Connection& connection, const FrameHeader& header,
                           std::shared_ptr<Exchange>* exchange) {
  const auto it = keys_.find(header.key);
  const auto unexpected = [&](const std::string& why) {
    return Internal(connection.peer_name() + " sent an unexpected reply (key " +
                    std::to_string(header.key) + ", part " + std::to_string(header.part) +
                    ", round " + std::to_string(header.round) + "): " + why);
  };
  if (it == keys_.end()) return unexpected("unknown key");
  if (header.worker != rank_) return unexpected("for worker " + std::to_string(header.worker));
  if (header.epoch != job_.epoch) return unexpected("for epoch " + std::to_string(header.epoch));
  const Key& key = *it->second;
  if (header.round >= key.next_round) return unexpected("that round has not begun");
  const std::shared_ptr<Exchange>& live = key.live;
  // An exchange that failed does not wait for the rest of its replies; they are read and dropped.
  if (live == nullptr || live->round != header.round) return OkStatus();
  if (live->entry == nullptr || header.part >= live->part_done.size())
    return unexpected("no such part");
  // So are those of a server from which the part has moved.
  if (header.placement_version < live->places[header.part].version) return OkStatus();
  if (live->part_done[header.part]) return unexpected("answered before");
  if (live->by_parts && live->part_requests[header.part].done == nullptr)
    return unexpected("never sent");
  const int32_t server = connection.peer().rank;
  if (live->places[header.part].server != server) return unexpected("not that part's owner");
  if (servers_[server].is_lost) return unexpected("that server has been given up");
  *exchange = live;
  return OkStatus();
}

Status Worker::OnHeader(Connection& connection, const FrameHeader& header,
                        std::shared_ptr<PayloadSink>* sink) {
  if (header.type == FrameType::kControl) {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  if (header.type != FrameType::kReply)
    return Internal(connection.peer_name() + " sent a frame that is no reply");
  std::shared_ptr<Exchange> exchange;
  std::lock_guard<std::mutex> lock(mutex_);
  BYTEPS_RETURN_IF_ERROR(FindReplied(connection, header, &exchange));
  if (exchange == nullptr || IsMoving(*exchange, header.part)) return OkStatus();
  if (Path* const path = FindPath(connection))
    path->receives.emplace_back(header.key, exchange->entry->variant, header.part);
  if (exchange->trace != nullptr) exchange->trace->parts[header.part].reply_begin_ns = WallNanos();
  const TensorDescription& tensor = exchange->request.tensor;
  if (header.status != StatusCode::kOk) {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  if (header.codec != CodecId::kRaw) {
    const Status status = DecodingSink::New(exchange, header, sink);
    if (status.ok()) return OkStatus();
    return Internal(connection.peer_name() + ", " + exchange->Name() + ", part " +
                    std::to_string(header.part) + ": " + status.message());
  }
  if (tensor.kind == ExchangeKind::kGather) {
    if (header.payload_bytes < job_.num_workers() * sizeof(int64_t))
      return Internal("gather reply without row counts");
    *sink = std::make_shared<GatherSink>(exchange, job_.num_workers(), header.payload_bytes);
    return OkStatus();
  }
  const uint64_t expected = exchange->ReplyBytes(header.part, rank_);
  // Raw is what is not compressed, and a result that comes from another worker (rule 15).
  if (header.payload_bytes != expected) {
    return Internal(connection.peer_name() + " sent " + std::to_string(header.payload_bytes) +
                    " bytes for " + exchange->Name() + ", part " + std::to_string(header.part) +
                    " of " + std::to_string(expected));
  }
  *sink = std::make_shared<RegionSink>(exchange, header.part);
  return OkStatus();
}

Status Worker::OnFrame(Connection& connection, const FrameHeader& header,
                       std::shared_ptr<PayloadSink> sink) {
  if (header.type == FrameType::kControl) return OnServersNews(connection, sink.get());
  Actions actions(this);
  std::lock_guard<std::mutex> lock(mutex_);
  NoteProgress(connection);
  if (header.credit_bytes > 0) {
    ReturnCredit(connection, header.credit_bytes);
    Pump(&actions);
    MeasureLink(header.credit_bytes, &actions);
  }
  if (header.type == FrameType::kCredit) return OkStatus();
  if (header.type == FrameType::kWanted) {
    OnWanted(header);
    return OkStatus();
  }
  if (header.type != FrameType::kReply)
    return Internal(connection.peer_name() + " sent a frame that is no reply");
  counters_.received_bytes += header.payload_bytes;
  ++counters_.received_parts;
  Path* const path = FindPath(connection);
  if (path != nullptr) path->received_bytes += header.payload_bytes;
  const bool had_begun = path != nullptr && !path->receives.empty() &&
                         std::get<0>(path->receives.back()) == header.key &&
                         std::get<2>(path->receives.back()) == header.part;
  if (had_begun) path->receives.pop_back();
  std::shared_ptr<Exchange> exchange;
  BYTEPS_RETURN_IF_ERROR(FindReplied(connection, header, &exchange));
  if (keeps_results_) DropResults(*keys_.at(header.key), connection.peer().rank, header, &actions);
  if (exchange != nullptr && (had_begun || !IsMoving(*exchange, header.part)))
    BYTEPS_RETURN_IF_ERROR(
        FinishPart(connection.peer_name(), exchange, header, sink.get(), &actions));
  if (had_begun) HoldPartsIfClosed(&actions);
  return OkStatus();
}

// Remembers a part that is not there to be pushed yet; one that has left is no matter.
void Worker::OnWanted(const FrameHeader& header) {
  const auto it = keys_.find(header.key);
  if (it == keys_.end()) return;
  Key& key = *it->second;
  const Exchange* live = key.live.get();
  const bool has_begun = live != nullptr && live->round == header.round;
  if (has_begun && live->entry != nullptr) {
    if (queue_.Prefer(live, header.part) || !live->by_parts) return;
  } else if (!has_begun && header.round != key.next_round) {
    return;
  }
  if (key.wanted.round != header.round) key.wanted = {};
  key.wanted.round = header.round;
  if (key.wanted.parts.size() < kMostWanted && key.wanted.parts.insert(header.part).second)
    key.wanted.in_order.push_back(header.part);
}

// A server that ends tells why; one to which a connection has come again tells what it has.
Status Worker::OnServersNews(Connection& connection, PayloadSink* sink) {
  ControlMessage message;
  const bool is_message =
      sink != nullptr && DecodeControl(static_cast<BufferSink*>(sink)->Take(), &message).ok();
  if (is_message && std::holds_alternative<PeerLost>(message)) {
    OnControl(std::move(message));
    return OkStatus();
  }
  if (is_message && std::holds_alternative<ArrivalReport>(message))
    return OnArrivalReport(connection.peer().rank, std::get<ArrivalReport>(message));
  if (!is_message || !std::holds_alternative<ResumeAnswer>(message))
    return Internal(connection.peer_name() + " sent a message that is not understood");
  Actions actions(this);
  std::lock_guard<std::mutex> lock(mutex_);
  return OnResumeAnswer(connection, std::get<ResumeAnswer>(message), &actions);
}

Status Worker::OnArrivalReport(int32_t server, const ArrivalReport& report) {
  std::lock_guard<std::mutex> lock(mutex_);
  arrivals_.resize(job_.num_servers());
  std::vector<WorkerLag>& lags = arrivals_[server];
  lags.resize(job_.num_workers());
  for (const auto& [rank, lag] : report.rows) {
    if (rank < 0 || rank >= job_.num_workers()) {
      return Internal("server " + std::to_string(server) + " reported on worker " +
                      std::to_string(rank) + " of " + std::to_string(job_.num_workers()));
    }
    lags[rank] = lag;
  }
  return OkStatus();
}

std::vector<WorkerLag> Worker::arrival_lags() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Lags();
}

Status Worker::FinishPart(const std::string& server, const std::shared_ptr<Exchange>& exchange,
                          const FrameHeader& header, PayloadSink* sink, Actions* actions) {
  if (exchange->trace != nullptr) exchange->trace->parts[header.part].OnReply(header);
  ExpectNoAnswer(exchange.get(), header.part);
  const TensorDescription& tensor = exchange->request.tensor;
  if (header.status != StatusCode::kOk) {
    std::string text = sink != nullptr ? static_cast<BufferSink*>(sink)->Take() : "no reason given";
    // Its own failure, not what it says of the workers.
    if (header.status == StatusCode::kResourceExhausted) text = server + ": " + text;
    Finish(exchange, Status(header.status, text), actions);
    return OkStatus();
  }
  const uint64_t bytes = exchange->PartBytes(header.part);
  if (tensor.kind == ExchangeKind::kGather) {
    if (sink == nullptr) return Internal("gather reply without row counts");
    const Status& status = static_cast<GatherSink*>(sink)->status();
    if (!status.ok()) {
      Finish(exchange, status, actions);
      return OkStatus();
    }
  } else if (exchange->by_parts) {
    PartRequest& request = exchange->part_requests[header.part];
    const bool is_encoded = request.takes_encoded && header.codec != CodecId::kRaw;
    exchange->sum_is_encoded[header.part] = is_encoded;
    actions->parts_done.push_back(
        [done = std::move(request.done), is_encoded] { done(is_encoded); });
    request.done = nullptr;
    exchange->part_done[header.part] = true;
    --exchange->parts_left;
    return OkStatus();
  } else if (tensor.kind == ExchangeKind::kBroadcast && rank_ == tensor.root_rank) {
    const uint64_t offset = exchange->PartOffset(header.part);
    if (bytes > 0) {
      std::memcpy(static_cast<uint8_t*>(exchange->memory.output) + offset,
                  static_cast<const uint8_t*>(exchange->memory.input) + offset, bytes);
    }
  } else if (bytes > 0 && sink == nullptr) {
    return Internal(exchange->Name() + ": a reply without its payload");
  }
  exchange->part_done[header.part] = true;
  if (--exchange->parts_left == 0) Finish(exchange, OkStatus(), actions);
  return OkStatus();
}

void Worker::Finish(const std::shared_ptr<Exchange>& exchange, const Status& status,
                    Actions* actions) {
  if (exchange->finished) return;
  exchange->finished = true;
  exchange->CloseOutput();
  const int64_t now = MonotonicNanos();
  CountEnd(status.ok(), now);
  step_meter_.End(exchange->step, now);
  if (!status.ok()) {
    Withdraw(exchange, status, actions);
    Revoke(*exchange, actions);
  }
  for (uint32_t part = 0; part < exchange->sent_on.size(); ++part)
    ExpectNoAnswer(exchange.get(), part);
  for (PartRequest& part : exchange->part_requests)
    actions->parts_dropped.push_back(std::move(part.done));
  Key& key = FindOrAddKey(exchange->request.tensor.name);
  key.live = nullptr;
  key.has_failed = !status.ok();
  key.ended_ns = now;
  key.is_reported = false;
  if (keeps_results_ && status.ok()) Keep(exchange, &key, actions);
  last_ended_.key = &key;
  last_ended_.round = exchange->round;
  last_ended_.ns = key.ended_ns;
  actions->finished.emplace_back(exchange, status);
}

// Takes back what has not left: nobody wants it, and the caller may use the memory again.
void Worker::Revoke(const Exchange& exchange, Actions* actions) {
  uint64_t revoked = 0;
  for (uint32_t part = 0; part < exchange.sent_on.size(); ++part) {
    if (exchange.sent_on[part] < 0) continue;
    const Path& path = servers_[exchange.places[part].server].paths[exchange.sent_on[part]];
    if (path.connection == nullptr) continue;
    const uint64_t bytes = path.connection->Revoke(&exchange, &actions->dropped);
    ReturnCredit(*path.connection, bytes);
    revoked += bytes;
  }
  if (revoked > 0 && !stopping_ && failure_.ok()) Pump(actions);
}

void Worker::CountStart(int64_t now_ns) {
  if (counters_.started_exchanges == counters_.exchanges) exchanging_since_ns_ = now_ns;
  ++counters_.started_exchanges;
}

void Worker::CountEnd(bool well, int64_t now_ns) {
  ++counters_.exchanges;
  if (!well) ++counters_.failed_exchanges;
  if (counters_.started_exchanges == counters_.exchanges)
    counters_.exchanging_ns += now_ns - exchanging_since_ns_;
}

// Tells the servers of its parts, so that the round ends for all and does not wait for this worker.
// Unless everything ends: then the others learn that.
void Worker::Withdraw(const std::shared_ptr<Exchange>& exchange, const Status& reason,
                      Actions* actions) {
  if (local_ || exchange->entry == nullptr || stopping_ || !failure_.ok()) return;
  for (uint32_t part = 0; part < exchange->places.size(); ++part) {
    if (exchange->part_done[part]) continue;
    GiveUp(exchange->places[part].server,
           exchange->WithdrawalFrame(exchange, part, rank_, job_.epoch, reason), actions);
  }
}

void Worker::FinishAll(const Status& reason, Actions* actions) {
  for (const auto& [name, key] : keys_by_name_) {
    const std::shared_ptr<Exchange> live = key->live;
    if (live != nullptr)
      Finish(live, Status(reason.code(), live->Name() + ": " + reason.message()), actions);
  }
  for (const auto& [name, key] : keys_by_name_) actions->dropped.push_back(std::move(key->last));
  queue_.Clear();
  for (ServerLink& server : servers_) {
    server.parked.clear();
    for (OutgoingFrame& frame : std::exchange(server.results, {}))
      actions->dropped.push_back(std::move(frame.keep_alive));
  }
}

void Worker::OnControl(ControlMessage message) {
  if (const auto* relay = std::get_if<Relay>(&message)) return OnRelay(*relay);
  if (const auto* lost = std::get_if<PeerLost>(&message)) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      coordinator_is_lost_ = coordinator_is_lost_ || lost->role == Role::kCoordinator;
    }
    return Fail(Unavailable(lost->description), LostPeer{lost->role, lost->rank});
  }
  Status status;
  std::string stall_text;
  {
    Actions actions(this);
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto* reply = std::get_if<DeclareReply>(&message)) {
      status = OnDeclareReply(std::move(*reply), &actions);
    } else if (std::holds_alternative<byteps::HoldRounds>(message)) {
      HoldRounds(&actions);
    } else if (auto* retune = std::get_if<Retune>(&message)) {
      status = OnRetune(std::move(*retune), &actions);
    } else if (const auto* server = std::get_if<ServerLost>(&message)) {
      OnServerLost(*server, &actions);
    } else if (const auto* back = std::get_if<ServerBack>(&message)) {
      status = OnServerBack(*back, &actions);
    } else if (const auto* all_have = std::get_if<ResultsHeld>(&message)) {
      OnResultsHeld(*all_have, &actions);
    } else if (const auto* moved = std::get_if<PartsMoved>(&message)) {
      status = OnPartsMoved(*moved, &actions);
    } else if (std::holds_alternative<Goodbye>(message)) {
      left_ = true;
      goodbye_answered_.notify_all();
    } else if (const auto* query = std::get_if<StallQuery>(&message)) {
      AnswerStallQuery(*query, &actions);
    } else if (const auto* notice = std::get_if<StallNotice>(&message)) {
      stall_text = StallText(*notice);
    }
  }
  if (!stall_text.empty()) {
    LogWarning(stall_text, {"stalled", {}});
    std::lock_guard<std::mutex> lock(mutex_);
    last_stall_notice_ns_ = MonotonicNanos();
  }
  if (!status.ok()) Fail(status);
}

void Worker::Fail(const Status& reason, const std::optional<LostPeer>& lost) {
  std::shared_ptr<WorkerCompanion> companion;
  {
    Actions actions(this);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok() || stopping_) return;
    failure_ = reason;
    lost_peer_ = lost;
    LogError(reason.message(), {"job_failed", {}});
    FinishAll(reason, &actions);
    companion = companion_;
  }
  if (companion != nullptr) companion->OnFailure(reason);
}

void Worker::FinishLocally(const ExchangeRequest& request) {
  std::unique_ptr<ExchangeTrace> trace = NewTrace(request, 0);
  Status refusal;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    refusal = Refusal();
    ++counters_.started_exchanges;
    ++counters_.exchanges;
    if (!refusal.ok()) ++counters_.failed_exchanges;
    const int64_t now = MonotonicNanos();
    const uint64_t step = step_meter_.Begin(request.tensor.name, true);
    step_meter_.NoteInput(step, now);
    step_meter_.End(step, now);
  }
  if (!refusal.ok()) return request.done(refusal);
  void* output = request.output;
  uint64_t bytes = request.tensor.ByteCount();
  if (request.tensor.kind == ExchangeKind::kGather) {
    bytes *= request.gather_rows;
    output = request.allocate_output({request.gather_rows});
    if (output == nullptr)
      return request.done(ResourceExhausted("no memory for the gathered result"));
  }
  if (bytes > 0) std::memcpy(output, request.input, bytes);
  if (trace != nullptr) timeline_->Add(std::move(trace), OkStatus());
  request.done(OkStatus());
}

}  // namespace byteps
