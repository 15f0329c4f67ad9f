// Simulates seeds: one, or those that a test of the simulation runs, and what comes of them.
//
//     BYTEPS_SIMULATION_SEED=N     this one only, and all that happens is printed
//     BYTEPS_SIMULATION_FIRST=N    from this one on; 1 by default
//     BYTEPS_SIMULATION_SEEDS=N    so many
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cc/base/logging.h"
#include "cc/simulation/testing/elastic_job.h"
#include "cc/simulation/testing/simulated_job.h"
#include "cc/staging/local_messages.h"
#include "cc/wire/control.h"

namespace byteps {

using Plant = std::function<void(SimulatedNetwork*)>;

// After a failure, what the job was at work with stays in memory.
inline SimulationOutcome Simulate(uint64_t seed, const Plant& plant = nullptr,
                                  bool keeps_log = false, Programs programs = Programs::kRounds) {
  const auto run = [](auto job) {
    SimulationOutcome outcome = job->Run();
    if (!outcome.failure.empty()) {
      (void)job.release();
      SetSchedule(nullptr);
    }
    return outcome;
  };
  if (programs == Programs::kElastic)
    return run(std::make_unique<ElasticJob>(seed, plant, keeps_log));
  return run(std::make_unique<SimulatedJob>(seed, plant, keeps_log, programs));
}

// What there is to say of a seed that failed: the end of its log, from a second run.
inline std::string Replay(uint64_t seed, const Plant& plant = nullptr, size_t lines = 200,
                          Programs programs = Programs::kRounds) {
  const SimulationOutcome outcome = Simulate(seed, plant, /*keeps_log=*/true, programs);
  std::string text =
      "BYTEPS_SIMULATION_SEED=" + std::to_string(seed) + ": " + outcome.failure + "\n";
  const size_t first = outcome.log.size() > lines ? outcome.log.size() - lines : 0;
  for (size_t i = first; i < outcome.log.size(); ++i) text += outcome.log[i] + "\n";
  return text;
}

inline constexpr uint64_t kEverydaySeeds = 500;
inline constexpr uint64_t kMostSeeds = 2000;  // that find a planted bug

class SimulationTest : public testing::Test {
  void SetUp() override {
    if (!kCanSimulate) GTEST_SKIP() << "not with a sanitizer";
    SetLogLevel(LogLevel::kError);
  }
};

// Whether a seed finds a planted bug: again if it runs again, and not by a fault of its own.
inline bool IsFound(const Plant& plant, Programs programs) {
  for (uint64_t seed = 1; seed <= kMostSeeds; ++seed) {
    const auto run = [&](const Plant& planted) {
      return Simulate(seed, planted, /*keeps_log=*/false, programs).failure;
    };
    const std::string failure = run(plant);
    if (failure.empty()) continue;
    std::cout << "found by seed " << seed << ": " << failure << std::endl;
    EXPECT_EQ(run(plant), failure);
    EXPECT_EQ(run(nullptr), "");
    return true;
  }
  return false;
}

// Sends other bytes in a frame's place.
inline void ReplacePayload(OutgoingFrame* frame, std::string bytes) {
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  frame->payload = kept->data();
  frame->header.payload_bytes = kept->size();
  frame->keep_alive = kept;
}

// Changes what processes say to the coordinator, and it to them.
inline Plant InControl(const std::function<void(const std::string& from, const std::string& to,
                                                ControlMessage* message)>& change) {
  return [change](SimulatedNetwork* network) {
    network->tamper().on_frame = [change](const std::string& from, const std::string& to,
                                          OutgoingFrame* frame) {
      const bool is_control = from == "coordinator" || to == "coordinator";
      if (!is_control || frame->payload == nullptr) return;
      ControlMessage message;
      const std::string sent(static_cast<const char*>(frame->payload), frame->header.payload_bytes);
      if (!DecodeControl(sent, &message).ok()) return;
      change(from, to, &message);
      std::string changed = EncodeControl(message);
      if (changed != sent) ReplacePayload(frame, std::move(changed));
    };
  };
}

// A server says that all have a round's result as soon as it sends the first reply.
inline Plant EarlyWatermarks() {
  return [](SimulatedNetwork* network) {
    network->tamper().after_send = [](const FrameHeader& header) -> std::optional<FrameHeader> {
      if (header.type != FrameType::kReply || header.round == 0) return std::nullopt;
      FrameHeader early = header;
      --early.round;
      early.credit_bytes = 0;
      early.watermark = header.round + 1;
      return early;
    };
  };
}

using LaunchEntries = std::vector<LaunchEntry>;

// Changes what local rank 0 tells the other ranks of its host.
inline Plant InLaunchLog(
    const std::function<void(LaunchEntries* entries, EventSchedule*)>& change) {
  return [change](SimulatedNetwork* network) {
    network->tamper().on_frame = [network, change](const std::string& from, const std::string& to,
                                                   OutgoingFrame* frame) {
      const bool is_of_host = from.rfind("worker", 0) == 0 && to.rfind("worker", 0) == 0;
      if (!is_of_host || frame->payload == nullptr) return;
      LocalMessage message;
      const std::string sent(static_cast<const char*>(frame->payload), frame->header.payload_bytes);
      if (!DecodeLocal(sent, &message).ok() || !std::holds_alternative<LogSlice>(message)) return;
      change(&std::get<LogSlice>(message).entries, &network->schedule());
      ReplacePayload(frame, EncodeLocal(message));
    };
  };
}

inline bool IsCollective(const LaunchEntry& entry) {
  return entry.kind != LaunchEntry::Kind::kFail && entry.kind != LaunchEntry::Kind::kEnd;
}

// A rank leaves out an entry now and then.
inline Plant SkippedLaunches() {
  return InLaunchLog([](LaunchEntries* entries, EventSchedule* schedule) {
    LaunchEntry& last = entries->back();
    if (!IsCollective(last) || !schedule->Chance(0.05)) return;
    last.kind = LaunchEntry::Kind::kFail;
    last.key = 1;  // of no tensor
    last.reason = Cancelled("nothing fails by it");
  });
}

// Now and then a worker gets the rows that an alltoall has for another one.
inline Plant WrongRows() {
  return [](SimulatedNetwork* network) {
    const auto sent = std::make_shared<std::map<std::pair<uint64_t, uint64_t>, OutgoingFrame>>();
    network->tamper().on_frame = [=](const std::string& from, const std::string&,
                                     OutgoingFrame* frame) {
      FrameHeader& header = frame->header;
      const bool is_of_server = from.rfind("server", 0) == 0;
      if (!is_of_server || header.type != FrameType::kReply || frame->scattered == nullptr) return;
      const auto [first, is_first] =
          sent->emplace(std::make_pair(header.key, header.round), *frame);
      if (is_first || !network->schedule().Chance(0.05)) return;
      frame->scattered = first->second.scattered;
      frame->keep_alive = first->second.keep_alive;
      header.payload_bytes = first->second.header.payload_bytes;
      header.element_count = first->second.header.element_count;
    };
  };
}

inline uint64_t Given(const char* variable, uint64_t otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::stoull(given);
}

// Each seed that fails is a failure of the test; the first one is printed with the end of its log.
// Returns the sums of all outcomes, and whether they are those of all the everyday seeds.
inline bool RunSeeds(Programs programs, SimulationOutcome* all) {
  if (const uint64_t seed = Given("BYTEPS_SIMULATION_SEED", 0)) {
    const SimulationOutcome outcome = Simulate(seed, nullptr, /*keeps_log=*/true, programs);
    for (const std::string& line : outcome.log) std::cout << line << "\n";
    EXPECT_EQ(outcome.failure, "");
    return false;
  }
  const uint64_t first = Given("BYTEPS_SIMULATION_FIRST", 1);
  const uint64_t seeds = Given("BYTEPS_SIMULATION_SEEDS", kEverydaySeeds);
  uint64_t failed = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const SimulationOutcome outcome = Simulate(seed, nullptr, /*keeps_log=*/false, programs);
    all->Add(outcome);
    if (outcome.failure.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << outcome.failure;
    if (++failed == 1) std::cout << Replay(seed, nullptr, 200, programs) << std::flush;
  }
  std::cout << seeds << " seeds from " << first << " on, " << failed
            << " failed: " << all->ToString() << std::endl;
  return first == 1 && seeds >= kEverydaySeeds;
}

// Of seeds that failed once.
template <typename Seeds>
void ExpectToPass(const Seeds& seeds, Programs programs) {
  for (const uint64_t seed : seeds) {
    const SimulationOutcome outcome = Simulate(seed, nullptr, /*keeps_log=*/false, programs);
    ASSERT_EQ(outcome.failure, "") << Replay(seed, nullptr, 200, programs);
  }
}

// A seed decides all that happens, with a log and without, and others decide otherwise.
inline void ExpectSeedsToDecide(Programs programs) {
  for (const uint64_t seed : {3u, 11u, 12u}) {
    const SimulationOutcome first = Simulate(seed, nullptr, /*keeps_log=*/false, programs);
    const SimulationOutcome second = Simulate(seed, nullptr, /*keeps_log=*/true, programs);
    EXPECT_EQ(first.hash, second.hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_GT(second.log.size(), 100u);
  }
  const auto hash = [&](uint64_t seed) { return Simulate(seed, nullptr, false, programs).hash; };
  EXPECT_NE(hash(3), hash(11));
}

}  // namespace byteps
