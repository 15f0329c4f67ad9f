// Threads of tests.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

namespace byteps {

// Calls `body(number)` for each number from 0 on, each on a thread of its own; returns when all
// have returned.
template <typename Body>
void OnThreads(int32_t count, const Body& body) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (int32_t number = 0; number < count; ++number)
    threads.emplace_back([&body, number] { body(number); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace byteps
