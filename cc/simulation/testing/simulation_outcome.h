// SimulationOutcome: what came of a seed, or of many.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace byteps {

struct SimulationOutcome {
  std::string failure;  // empty: all was well
  uint64_t hash = 0;    // of all that happened
  uint64_t events = 0;
  std::vector<std::string> log;
  // How often it happened: a seed in which nothing does proves nothing.
  uint64_t exchanges = 0, lost_servers = 0, returned_servers = 0, retried_parts = 0,
           given_up_rounds = 0, left_trainings = 0, lost_workers = 0, gpu_exchanges = 0,
           lost_gpu_workers = 0, lost_hosts_links = 0, row_sums = 0, coded_sums = 0,
           backup_averages = 0, late_changes = 0, set_exchanges = 0, row_exchanges = 0, joins = 0,
           rounds_without_joined = 0, filled_copies = 0, freed_tables = 0;
  // Of elastic jobs.
  uint64_t epochs = 0, rollbacks = 0, failed_starts = 0, lost_sessions = 0, killed_servers = 0,
           cut_off_processes = 0, new_workers = 0, workers_sent_away = 0, done_workers = 0,
           resumed_tables = 0;

  void Add(const SimulationOutcome& other) {
    for (const auto& [count, what] : kCounts) this->*count += other.*count;
  }
  std::string ToString() const {
    std::string text;
    for (const auto& [count, what] : kCounts)
      text += (text.empty() ? "" : ", ") + std::to_string(this->*count) + " " + what;
    return text;
  }

 private:
  struct Count {
    uint64_t SimulationOutcome::* count;
    const char* what;
  };
  static const Count kCounts[31];
};

inline constexpr SimulationOutcome::Count SimulationOutcome::kCounts[] = {
    {&SimulationOutcome::events, "events"},
    {&SimulationOutcome::exchanges, "exchanges"},
    {&SimulationOutcome::gpu_exchanges, "of them of GPUs"},
    {&SimulationOutcome::row_sums, "sums of rows"},
    {&SimulationOutcome::coded_sums, "compressed sums"},
    {&SimulationOutcome::backup_averages, "averages with backup workers"},
    {&SimulationOutcome::late_changes, "rounds of a quorum to which a worker came late"},
    {&SimulationOutcome::set_exchanges, "exchanges of process sets"},
    {&SimulationOutcome::row_exchanges, "of rows of each worker's own number"},
    {&SimulationOutcome::joins, "joins"},
    {&SimulationOutcome::rounds_without_joined, "exchanges without workers that had joined"},
    {&SimulationOutcome::lost_servers, "lost servers, as workers saw them"},
    {&SimulationOutcome::returned_servers, "that came back"},
    {&SimulationOutcome::retried_parts, "parts pushed again"},
    {&SimulationOutcome::filled_copies, "copies of blocks of tables filled again"},
    {&SimulationOutcome::freed_tables, "times a worker saw a table freed"},
    {&SimulationOutcome::given_up_rounds, "rounds given up"},
    {&SimulationOutcome::left_trainings, "trainings left"},
    {&SimulationOutcome::lost_workers, "lost workers"},
    {&SimulationOutcome::lost_gpu_workers, "of them with GPUs"},
    {&SimulationOutcome::lost_hosts_links, "groups of GPUs that lost a connection"},
    {&SimulationOutcome::epochs, "epochs"},
    {&SimulationOutcome::rollbacks, "times a worker went back to its last commit"},
    {&SimulationOutcome::failed_starts, "workers that did not get into an epoch"},
    {&SimulationOutcome::lost_sessions, "that heard of a loss"},
    {&SimulationOutcome::killed_servers, "servers killed in elastic jobs"},
    {&SimulationOutcome::cut_off_processes, "processes cut off for long"},
    {&SimulationOutcome::new_workers, "workers started later"},
    {&SimulationOutcome::workers_sent_away, "workers sent away"},
    {&SimulationOutcome::done_workers, "workers that made all steps"},
    {&SimulationOutcome::resumed_tables, "times a worker went on with a table"},
};

}  // namespace byteps
