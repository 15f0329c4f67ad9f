// The pool's arithmetic and life, with ordinary memory; gpu_test.cc has it with pinned memory.
#include "cc/gpu/pinned_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <random>
#include <thread>

namespace byteps {
namespace {

constexpr size_t kMegabyte = 1 << 20;

struct CountedSource {
  std::map<void*, size_t> live;
  size_t limit = SIZE_MAX;  // bytes
  size_t given = 0;

  PinnedSource Source() {
    PinnedSource source;
    source.allocate = [this](size_t bytes, void** address) {
      if (given + bytes > limit) return ResourceExhausted("no more");
      given += bytes;
      *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
      live[*address] = bytes;
      return OkStatus();
    };
    source.free = [this](void* address, size_t bytes) {
      EXPECT_EQ(live[address], bytes);
      EXPECT_EQ(live.erase(address), 1u);
      std::free(address);
    };
    return source;
  }
};

TEST(PinnedPool, RoundsUpByAQuarterAtMost) {
  for (size_t bytes = 0; bytes < 5000; ++bytes) {
    const size_t size = PinnedPool::SizeFor(bytes);
    EXPECT_GE(size, bytes);
    EXPECT_EQ(size % 64, 0u) << bytes;
    EXPECT_EQ(PinnedPool::SizeFor(size), size);
    if (bytes > 256) {
      EXPECT_LE(size, bytes + bytes / 4);
    }
  }
  EXPECT_EQ(PinnedPool::SizeFor(size_t{5} << 30), size_t{5} << 30);
}

TEST(PinnedPool, UsesMemoryAgain) {
  CountedSource source;
  const auto pool = PinnedPool::Create(source.Source());
  const std::vector<size_t> step = {4, 1000, 65536, 3000000, 3000000, 100 << 20, 0};
  PinnedPoolCounters first;
  for (int i = 0; i < 10; ++i) {
    std::vector<PinnedPool::Block> blocks(step.size());
    for (size_t k = 0; k < step.size(); ++k) {
      ASSERT_TRUE(pool->Take(step[k], &blocks[k]).ok());
      ASSERT_NE(blocks[k], nullptr);
    }
    if (i == 0) first = pool->counters();
  }
  EXPECT_EQ(pool->counters().allocations, first.allocations);
  EXPECT_EQ(pool->counters().bytes_in_use, 0u);
  EXPECT_GT(first.bytes_in_use, size_t{100} << 20);
}

TEST(PinnedPool, BlocksDoNotOverlap) {
  CountedSource source;
  const auto pool = PinnedPool::Create(source.Source());
  std::mt19937 random(3);
  std::vector<std::pair<PinnedPool::Block, size_t>> held;
  for (int i = 0; i < 3000; ++i) {
    if (held.size() > 50) {
      const size_t victim = random() % held.size();
      const auto* bytes = static_cast<const unsigned char*>(held[victim].first.get());
      const unsigned char mark = bytes[0];
      for (size_t k = 0; k < held[victim].second; ++k) ASSERT_EQ(bytes[k], mark);
      held.erase(held.begin() + victim);
    }
    const size_t bytes = 1 + random() % 20000;
    PinnedPool::Block block;
    ASSERT_TRUE(pool->Take(bytes, &block).ok());
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0u);
    std::memset(block.get(), i % 251, bytes);
    held.emplace_back(std::move(block), bytes);
  }
}

TEST(PinnedPool, PassesOnTheSourcesError) {
  CountedSource source;
  source.limit = 10 << 20;
  const auto pool = PinnedPool::Create(source.Source());
  PinnedPool::Block big;
  ASSERT_TRUE(pool->Take(6 << 20, &big).ok());
  PinnedPool::Block more;
  EXPECT_EQ(pool->Take(6 << 20, &more).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(more, nullptr);
  big.reset();
  EXPECT_TRUE(pool->Take(6 << 20, &more).ok());
}

TEST(PinnedPool, ABlockOutlivesThePoolsOwner) {
  CountedSource source;
  auto pool = PinnedPool::Create(source.Source());
  PinnedPool::Block block;
  ASSERT_TRUE(pool->Take(5000, &block).ok());
  pool.reset();
  EXPECT_FALSE(source.live.empty());
  std::memset(block.get(), 1, 5000);
  block.reset();
  EXPECT_TRUE(source.live.empty());
}

TEST(PinnedPool, TellsOfAllItsMemoryUntilItIsFreed) {
  CountedSource source;
  std::map<void*, size_t> known;
  auto pool = PinnedPool::Create(source.Source());
  PinnedPool::Block before, after;
  ASSERT_TRUE(pool->Take(5 << 20, &before).ok());
  PinnedWatcher watcher;
  watcher.allocated = [&](void* address, size_t bytes) { known[address] = bytes; };
  watcher.about_to_free = [&](void* address) {
    EXPECT_EQ(source.live.count(address), 1u);
    EXPECT_EQ(known.erase(address), 1u);
  };
  pool->Watch(std::move(watcher));
  EXPECT_EQ(known, source.live);
  ASSERT_TRUE(pool->Take(1000, &after).ok());
  EXPECT_EQ(known.size(), 2u);
  EXPECT_EQ(known, source.live);
  before.reset();
  after.reset();
  pool.reset();
  EXPECT_TRUE(known.empty());
}

// To get memory may take until something else that CUDA does has ended.
TEST(PinnedPool, BlocksComeAndGoWhileItGrows) {
  CountedSource counted;
  PinnedSource source = counted.Source();
  std::promise<void> growing, may_grow;
  source.allocate = [&, allocate = source.allocate](size_t bytes, void** address) {
    if (bytes > kMegabyte * 16) {
      growing.set_value();
      may_grow.get_future().wait();
    }
    return allocate(bytes, address);
  };
  const auto pool = PinnedPool::Create(std::move(source));
  PinnedPool::Block small;
  ASSERT_TRUE(pool->Take(kMegabyte, &small).ok());
  std::thread grows([&] {
    PinnedPool::Block large;
    EXPECT_TRUE(pool->Take(kMegabyte * 32, &large).ok());
  });
  growing.get_future().wait();
  EXPECT_EQ(pool->counters().bytes_in_use, kMegabyte);
  small.reset();
  EXPECT_EQ(pool->counters().bytes_in_use, 0u);
  EXPECT_TRUE(pool->Take(kMegabyte, &small).ok());
  may_grow.set_value();
  grows.join();
  EXPECT_EQ(pool->counters().allocations, 2u);
}

TEST(PinnedPool, ManyThreads) {
  CountedSource source;
  const auto pool = PinnedPool::Create(source.Source());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&pool, thread] {
      std::mt19937 random(thread);
      for (int i = 0; i < 2000; ++i) {
        const size_t bytes = 1 + random() % 100000;
        PinnedPool::Block block;
        ASSERT_TRUE(pool->Take(bytes, &block).ok());
        std::memset(block.get(), thread, bytes);
        ASSERT_EQ(static_cast<char*>(block.get())[bytes - 1], thread);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->counters().bytes_in_use, 0u);
}

}  // namespace
}  // namespace byteps
