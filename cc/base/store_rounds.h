// How the rounds of an asynchronous store (ExchangeKind::kStore) are numbered. Each worker counts
// its own.
//
// A store begins with a worker's first round, or with the first multiple of kRoundsOfStore after
// that (Exchanges::BeginStores): what is pushed then is the value that the store begins with. What
// is pushed in all other rounds is added to it.
#pragma once

#include <cstdint>

namespace byteps {

inline constexpr uint64_t kRoundsOfStore = 1'000'000'000;

// Which of the stores under one name a round belongs to. The newest one counts.
constexpr uint64_t StoreOf(uint64_t round) { return round / kRoundsOfStore; }
constexpr uint64_t FirstRoundOf(uint64_t store) { return store * kRoundsOfStore; }
constexpr bool BeginsStore(uint64_t round) { return round % kRoundsOfStore == 0; }

// A version of a part of a store: the store, and how many pushes are in it. Replies have it as
// their watermark.
inline constexpr uint64_t kVersionsOfStore = uint64_t{1} << 40;
constexpr uint64_t StoreOfVersion(uint64_t version) { return version / kVersionsOfStore; }

// When its server is lost, a store goes on from the newest answer that a worker has. That must tell
// whether another worker's push, which has no answer, is in it: a bit for each worker, which each
// of its pushes turns over.
inline constexpr int32_t kMostWorkersOfMovedStore = 64;
constexpr bool PushBit(uint64_t round) { return (round % kRoundsOfStore + 1) % 2 != 0; }

}  // namespace byteps
