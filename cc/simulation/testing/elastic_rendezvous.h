// ElasticRendezvous: what Python decides in an elastic job, in a simulation: who is in which epoch
// (tf_byteps/rendezvous/membership.py), and which stage of an epoch's start comes when
// (tf_byteps/rendezvous/scheduler.py). It has the real coordinator of each epoch.
//
// Processes are fibers that call Join. What they and the scheduler say to each other comes after a
// drawn time, and not while the process is cut off.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/job.h"
#include "cc/coordinator/coordinator.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/simulated_van.h"

namespace byteps {

// One epoch: who was to be in it, by rank, and what is known of it.
struct ElasticEpoch {
  JobDescription job;
  size_t number = 0;  // from 1 on, whatever the job says
  std::vector<std::string> workers, servers;
  bool is_interrupted = false;  // somebody was lost before all had begun
  bool lacks_server = false;    // one was lost at its start, which ends with that
  bool any_has_left = false;    // a worker
  bool is_given_up = false;     // by a worker that has lost what only a lost server had for it
  bool has_ended = false;       // its coordinator has: who is still in it has lost that

  const std::string& NameOf(Role role, int32_t rank) const {
    static const std::string kScheduler = "coordinator";
    if (role == Role::kCoordinator) return kScheduler;
    return role == Role::kWorker ? workers[rank] : servers[rank];
  }
};

class ElasticRendezvous {
 public:
  // All outlive it. `job`: what all epochs have in common.
  ElasticRendezvous(const JobDescription& job, size_t num_workers, size_t num_servers,
                    size_t most_workers, SimulatedNetwork* network)
      : job_(job),
        num_workers_(num_workers),
        num_servers_(num_servers),
        most_workers_(most_workers),
        network_(*network),
        schedule_(network->schedule()) {}

  // ---- the scheduler

  // Epoch after epoch, until a worker is done and the others are, too, or gone.
  void Run() {
    while (Collect()) {
      ElasticEpoch* const epoch = Begin();
      if (RunStage(servers_, epoch->servers, epoch) && RunStage(workers_, epoch->workers, epoch))
        Attend(epoch);
    }
    is_over_ = true;
    StopCoordinator();
  }
  bool is_over() const { return is_over_; }
  // The last one that has been made up; null: none has.
  ElasticEpoch* epoch() const { return epochs_.empty() ? nullptr : epochs_.back().get(); }

  // Called when the workers of an epoch begin.
  void OnBegun(std::function<void()> call) { on_begun_ = std::move(call); }
  // Where a worker is, if not on the same host as all.
  void SetHost(const std::string& worker, const std::string& host) { hosts_[worker] = host; }
  // Its host is no longer in use.
  void SendAway(const std::string& worker) {
    schedule_.Note(worker + " is to leave");
    leaving_.insert(worker);
  }

  // ---- a process

  // Its next epoch and rank; null: there is none. A server says where it listens.
  ElasticEpoch* Join(const std::string& process, const Endpoint* listens_at, int32_t* rank) {
    Participant& own = (listens_at == nullptr ? workers_ : servers_)[process];
    if (listens_at != nullptr) own.endpoint = *listens_at;
    own.epoch = nullptr;
    Talk(process);
    while (!is_over_ && !network_.IsDead(process)) {
      if (own.epoch == nullptr && leaving_.count(process) > 0) break;  // it is told to go
      own.asks = own.epoch == nullptr;
      schedule_.Sleep(1000000 + static_cast<int64_t>(schedule_.Draw(5000000)));
      if (own.epoch == nullptr || IsCutOff(process)) continue;
      if (own.epoch->is_interrupted) {  // and asks again
        own.epoch = nullptr;
        schedule_.Sleep(kRetryNanos);
        continue;
      }
      *rank = own.rank;
      if (listens_at == nullptr) SayReady(process);
      return own.epoch;
    }
    own.asks = false;
    return nullptr;
  }
  // Workers are as soon as they have their rank, servers once they run.
  void SayReady(const std::string& process) {
    Talk(process);
    ready_.insert(process);
  }
  void GiveUp(const std::string& process) {
    Talk(process);
    given_up_.insert(process);
  }
  // It has finished, and needs the others no more.
  void SayDone(const std::string& worker) {
    Talk(worker);
    done_.insert(worker);
  }
  // The process has ended.
  void OnEnd(const std::string& process) { ended_.insert(process); }
  // Whether the workers of its epoch are to change, as far as this one has heard.
  bool IsToChange(const std::string& worker, const ElasticEpoch* epoch) const {
    const auto heard = told_ns_.find(worker);
    return epoch == changing_ && heard != told_ns_.end() && schedule_.NowNanos() >= heard->second;
  }
  bool any_is_done() const { return !done_.empty(); }

 private:
  static constexpr int64_t kMillisecond = 1000000;
  static constexpr int64_t kRetryNanos = 500 * kMillisecond;
  static constexpr int64_t kSilenceNanos = 5000 * kMillisecond;   // the heartbeat timeout
  static constexpr int64_t kVanishedNanos = 2000 * kMillisecond;  // see membership.py
  static constexpr int64_t kLongestNanos = 200 * 1000 * kMillisecond;

  struct Participant {
    bool asks = false;
    Endpoint endpoint;              // of a server
    ElasticEpoch* epoch = nullptr;  // in which it has a place
    int32_t rank = 0;
  };
  using Participants = std::map<std::string, Participant>;

  // A message between the scheduler and a process.
  void Talk(const std::string& process) {
    schedule_.Sleep(100000 + static_cast<int64_t>(schedule_.Draw(2 * kMillisecond)));
    while (IsCutOff(process) && !network_.IsDead(process)) schedule_.Sleep(10 * kMillisecond);
  }
  bool IsCutOff(const std::string& process) {
    return network_.IsSilent(process) ||
           network_.FrozenUntil(process, "coordinator") > schedule_.NowNanos();
  }
  // As the scheduler sees it by its connection, after a while.
  bool IsThere(const std::string& process) {
    const bool is_gone = network_.IsDead(process) || ended_.count(process) > 0 || IsCutOff(process);
    if (!is_gone) {
      gone_ns_.erase(process);
      return true;
    }
    const int64_t now_ns = schedule_.NowNanos();
    const int64_t notices_ns = now_ns + (IsCutOff(process) ? kSilenceNanos : 0);
    return now_ns < gone_ns_.emplace(process, notices_ns).first->second;
  }
  // Since that was noticed.
  int64_t GoneFor(const std::string& process) const {
    const auto found = gone_ns_.find(process);
    return found == gone_ns_.end() ? 0 : schedule_.NowNanos() - found->second;
  }

  std::vector<std::string> Joined(const Participants& from) {
    std::vector<std::string> joined;
    for (const auto& [name, each] : from) {
      if (each.asks && IsThere(name)) joined.push_back(name);
    }
    return joined;
  }

  // Waits for all whom the next epoch needs. False: the job is over.
  bool Collect() {
    const int64_t latest_ns = schedule_.NowNanos() + kLongestNanos;
    while (true) {
      schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(20 * kMillisecond)));
      const std::vector<std::string> workers = Joined(workers_), servers = Joined(servers_);
      const auto has_joined = [&](const std::string& name) {
        return std::find(workers.begin(), workers.end(), name) != workers.end();
      };
      bool awaits = false, any_has_come = false;
      for (const std::string& member : members_) {
        any_has_come = any_has_come || has_joined(member);
        awaits = awaits || (!has_joined(member) && done_.count(member) == 0 &&
                            leaving_.count(member) == 0 && IsThere(member));
      }
      if (!done_.empty() && !awaits && !any_has_come) return false;
      const size_t expected = num_workers_ - std::min(num_workers_ - 1, leaving_.size());
      const size_t least = epochs_.empty() ? expected : 1;
      if (servers.size() >= num_servers_ && workers.size() >= least && !awaits) return true;
      if (schedule_.NowNanos() > latest_ns)
        schedule_.Fail("the processes do not come together: " + std::to_string(workers.size()) +
                       " workers, " + std::to_string(servers.size()) + " servers");
    }
  }

  // Who was in the epoch before keeps its order, newcomers come behind them.
  std::vector<std::string> InOrder(const std::vector<std::string>& joined) const {
    std::vector<std::string> ordered;
    const auto is_in = [](const std::vector<std::string>& all, const std::string& name) {
      return std::find(all.begin(), all.end(), name) != all.end();
    };
    for (const std::string& member : members_) {
      if (is_in(joined, member)) ordered.push_back(member);
    }
    for (const std::string& name : joined) {
      if (!is_in(members_, name)) ordered.push_back(name);
    }
    if (ordered.size() > most_workers_) ordered.resize(most_workers_);
    return ordered;
  }

  ElasticEpoch* Begin() {
    auto epoch = std::make_unique<ElasticEpoch>();
    epoch->workers = InOrder(Joined(workers_));
    epoch->servers = Joined(servers_);
    epoch->servers.resize(num_servers_);
    epoch->job = job_;
    epoch->number = epochs_.size() + 1;
    epoch->job.epoch = network_.tamper().repeats_epochs ? 1 : static_cast<uint32_t>(epoch->number);
    epoch->job.worker_hosts.assign(epoch->workers.size(), "host");
    for (size_t rank = 0; rank < epoch->workers.size(); ++rank) {
      const auto host = hosts_.find(epoch->workers[rank]);
      if (host != hosts_.end()) epoch->job.worker_hosts[rank] = host->second;
    }
    for (const std::string& server : epoch->servers)
      epoch->job.server_endpoints.push_back(servers_[server].endpoint);
    StopCoordinator();  // who was in the last epoch has left it
    coordinator_ = std::make_unique<Coordinator>(
        job_.options, std::make_unique<SimulatedVan>(&network_, "coordinator"));
    (void)coordinator_->Listen("", 0);
    epoch->job.coordinator_endpoint = coordinator_->endpoint();
    std::string names;
    for (const std::string& worker : epoch->workers) names += " " + worker;
    schedule_.Note("epoch " + std::to_string(epoch->job.epoch) + " begins:" + names);
    const Status status = coordinator_->Start(epoch->job);
    if (!status.ok()) schedule_.Fail("a coordinator starts: " + status.ToString());
    ready_.clear();
    given_up_.clear();
    epochs_.push_back(std::move(epoch));
    return epochs_.back().get();
  }

  // Gives the epoch's servers, or workers, their places, and waits until all are ready. False:
  // somebody is lost.
  bool RunStage(Participants& all, const std::vector<std::string>& names, ElasticEpoch* epoch) {
    for (const std::string& name : names) {
      Participant& each = all[name];
      each.asks = false;
      each.rank = static_cast<int32_t>(&name - names.data());
      each.epoch = epoch;
      if (schedule_.Chance(0.3))
        schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(kMillisecond)));
    }
    if (&all == &workers_ && on_begun_) on_begun_();
    const int64_t latest_ns = schedule_.NowNanos() + kLongestNanos;
    while (true) {
      bool are_ready = true;
      for (const std::string& name : names) {
        if (ready_.count(name) > 0) continue;
        are_ready = false;
        const bool is_lost = !IsThere(name) && GoneFor(name) > 1000 * kMillisecond;
        if (!is_lost && given_up_.count(name) == 0) continue;
        schedule_.Note(name + " is lost while the epoch begins");
        epoch->is_interrupted = true;
        StopCoordinator();  // who has begun waits for the others
        return false;
      }
      if (are_ready) break;
      if (schedule_.NowNanos() > latest_ns) schedule_.Fail("an epoch does not begin");
      schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(10 * kMillisecond)));
    }
    if (&all == &workers_) members_ = names;
    return true;
  }

  // Until the workers have left, or somebody is lost.
  void Attend(ElasticEpoch* epoch) {
    const int64_t began_ns = schedule_.NowNanos();
    const auto connecting_ns = static_cast<int64_t>(job_.options.timeouts.connect_timeout * 1e9);
    while (coordinator_->failure().empty() && !coordinator_->Wait(0)) {
      schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(200 * kMillisecond)));
      AnnounceChange(epoch);
      if (schedule_.NowNanos() - began_ns > connecting_ns) continue;
      for (const std::string& member : members_) {
        if (IsThere(member) || done_.count(member) > 0 || GoneFor(member) <= kVanishedNanos)
          continue;
        schedule_.Note(member + " was lost when the epoch had just begun");
        epoch->is_interrupted = true;
        return StopCoordinator();  // the others learn it so
      }
    }
  }

  // That of the last epoch, if there was one.
  void StopCoordinator() {
    if (coordinator_ == nullptr) return;
    epochs_.back()->has_ended = true;
    coordinator_->Stop();
  }

  void AnnounceChange(ElasticEpoch* epoch) {
    if (changing_ == epoch) return;
    const auto is_member = [this](const std::string& name) {
      return std::find(members_.begin(), members_.end(), name) != members_.end();
    };
    bool changes = std::any_of(leaving_.begin(), leaving_.end(), is_member);
    for (const std::string& name : Joined(workers_))
      changes = changes || (!is_member(name) && members_.size() < most_workers_);
    if (!changes) return;
    changing_ = epoch;
    for (const std::string& member : members_)
      told_ns_[member] = schedule_.NowNanos() + static_cast<int64_t>(schedule_.Draw(3000000));
  }

  const JobDescription job_;
  const size_t num_workers_, num_servers_, most_workers_;  // workers: at first
  SimulatedNetwork& network_;
  EventSchedule& schedule_;
  std::function<void()> on_begun_;
  std::unique_ptr<Coordinator> coordinator_;  // of the last epoch
  std::vector<std::unique_ptr<ElasticEpoch>> epochs_;
  Participants workers_, servers_;
  std::map<std::string, std::string> hosts_;  // of workers that have their own
  std::vector<std::string> members_;          // of the last epoch that has begun, by rank
  std::set<std::string> done_, leaving_, ready_, given_up_, ended_;
  std::map<std::string, int64_t> gone_ns_;  // since when, as the scheduler sees it, or will
  const ElasticEpoch* changing_ = nullptr;  // whose workers have been told
  std::map<std::string, int64_t> told_ns_;  // when each of them hears it
  bool is_over_ = false;
};

}  // namespace byteps
