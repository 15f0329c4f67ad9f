// How rounds are numbered that belong to a training. A worker that leaves a training by an error
// gives up all rounds that this could yet have, and goes on at the first round of the next multiple
// of this. Nobody trains for longer without meeting the others again.
#pragma once

#include <cstdint>

namespace byteps {

inline constexpr uint64_t kRoundsOfTraining = 10'000'000'000;

constexpr uint64_t TrainingOf(uint64_t round) { return round / kRoundsOfTraining; }

}  // namespace byteps
