// Runs a fuzz target without libFuzzer: all seeds, then inputs made from them, always the same.
//
//     frame_fuzz [--runs N] [--seconds S] [--seed N]
//     frame_fuzz --write-seeds FOLDER      for libFuzzer
//
// A crash prints the input in hexadecimal.
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/fuzz/fuzz.h"

namespace byteps {
namespace {

constexpr size_t kMostBytes = 8192;
const std::string* g_input = nullptr;  // that is being run

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, uint64_t seed)
      : seeds_(std::move(seeds)), random_(seed) {}

  std::string Next() {
    std::string input = seeds_[random_() % seeds_.size()];
    for (uint64_t changes = 1 + random_() % 6; changes > 0; --changes) Change(&input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  void Change(std::string* input) {
    const size_t at = input->empty() ? 0 : random_() % input->size();
    switch (random_() % 8) {
      case 0:
        if (!input->empty()) (*input)[at] ^= static_cast<char>(1 << random_() % 8);
        break;
      case 1:
        if (!input->empty()) (*input)[at] = static_cast<char>(random_());
        break;
      case 2: input->resize(at); break;
      case 3: input->insert(at, random_() % 64, static_cast<char>(random_())); break;
      case 4: input->erase(at, random_() % 16); break;
      case 5: PutNumber(input, at, 4); break;
      case 6: PutNumber(input, at, 8); break;
      default:
        const std::string& other = seeds_[random_() % seeds_.size()];
        input->replace(at, std::string::npos, other, random_() % (other.size() + 1));
    }
  }
  void PutNumber(std::string* input, size_t at, size_t bytes) {
    static constexpr uint64_t kNumbers[] = {0,
                                            1,
                                            2,
                                            7,
                                            127,
                                            128,
                                            255,
                                            65535,
                                            0x7fffffff,
                                            0x80000000,
                                            0xffffffff,
                                            uint64_t{1} << 40,
                                            uint64_t{1} << 62,
                                            uint64_t{1} << 63,
                                            ~uint64_t{0}};
    const uint64_t number = kNumbers[random_() % std::size(kNumbers)];
    if (input->size() < at + bytes) return;
    std::memcpy(input->data() + at, &number, bytes);
  }

  const std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

void PrintInput(int number) {
  if (g_input != nullptr) {
    std::fprintf(stderr, "the input:");
    for (const unsigned char byte : *g_input) std::fprintf(stderr, " %02x", byte);
    std::fprintf(stderr, "\n");
  }
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void Run(const std::string& input) {
  g_input = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  g_input = nullptr;
}

int WriteSeeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : FuzzSeeds()) {
    std::ofstream file(folder + "/seed-" + std::to_string(number++), std::ios::binary);
    file << seed;
    if (!file) return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  uint64_t runs = 20000, seed = 1;
  double seconds = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--write-seeds") return WriteSeeds(argv[i + 1]);
    if (name == "--runs") runs = std::stoull(argv[i + 1]);
    if (name == "--seed") seed = std::stoull(argv[i + 1]);
    if (name == "--seconds") seconds = std::stod(argv[i + 1]);
  }
  for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL})
    std::signal(number, PrintInput);
  const std::vector<std::string> seeds = FuzzSeeds();
  for (const std::string& input : seeds) Run(input);
  Mutator mutator(seeds, seed);
  const int64_t end = MonotonicNanos() + SecondsToNanos(seconds);
  uint64_t done = 0;
  while (seconds > 0 ? MonotonicNanos() < end : done < runs) {
    Run(mutator.Next());
    ++done;
  }
  std::cout << seeds.size() << " seeds and " << done << " mutations (seed " << seed << ")\n";
  return 0;
}

}  // namespace
}  // namespace byteps

int main(int argc, char** argv) { return byteps::Main(argc, argv); }
