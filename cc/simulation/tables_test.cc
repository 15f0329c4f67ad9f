// Tables on servers under random faults: of each seed everything holds that table_program.h checks.
// And planted bugs are found.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "cc/base/table_request.h"
#include "cc/simulation/testing/seeds.h"

namespace byteps {
namespace {

constexpr uint64_t kSeedsThatFailed[] = {4734};

class TablesTest : public SimulationTest {};

// Protocol rules 15, 38, 39, 41.
TEST_F(TablesTest, NoSeedLosesAChangeOrMakesOneTwice) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kTables, &all)) return;
  EXPECT_GT(all.lost_servers, 500u);
  EXPECT_GT(all.returned_servers, 300u);
  EXPECT_GT(all.retried_parts, 500u);
  EXPECT_GT(all.filled_copies, 300u);
  EXPECT_GT(all.freed_tables, 800u);
}

// Protocol rule 39: a copy had refused a change on the server that it was on before, and waited for
// it.
TEST_F(TablesTest, SeedsThatFailedDoSoNoMore) { ExpectToPass(kSeedsThatFailed, Programs::kTables); }

// Changes what workers ask of servers, with the exchange's key. Requests keep their length.
Plant InRequests(const std::function<void(uint64_t key, TableRequest::Kind kind,
                                          std::string* request)>& change) {
  return [change](SimulatedNetwork* network) {
    network->tamper().on_frame = [change](const std::string& from, const std::string& to,
                                          OutgoingFrame* frame) {
      const bool is_request = frame->header.type == FrameType::kPush && frame->payload != nullptr &&
                              frame->header.payload_bytes >= 32 && from.rfind("worker", 0) == 0 &&
                              to.rfind("server", 0) == 0;
      if (!is_request) return;
      std::string request(static_cast<const char*>(frame->payload), frame->header.payload_bytes);
      uint32_t kind = 0;
      std::memcpy(&kind, request.data(), sizeof(kind));
      const std::string sent = request;
      change(frame->header.key, static_cast<TableRequest::Kind>(kind), &request);
      if (request != sent) ReplacePayload(frame, request);
    };
  };
}

// Which copies are being filled, from what is asked of them.
class Filling {
 public:
  // What a kFill says, where the next rows begin, counts from here on.
  static constexpr size_t kNextAt = sizeof(uint64_t);

  bool IsFilled(uint64_t key) const { return rows_.count(key) > 0; }
  int64_t RowsOf(uint64_t key) const { return rows_.at(key); }
  // Where the values of a request begin.
  static size_t ValuesAt(const std::string& request) {
    return 32 + NumberAt<int64_t>(request, 16) * sizeof(int64_t);
  }

  void See(uint64_t key, TableRequest::Kind kind, const std::string& request) {
    if (kind == TableRequest::Kind::kRefill) rows_[key] = NumberAt<int64_t>(request, 32 + 16);
    if (kind != TableRequest::Kind::kFill || !IsFilled(key)) return;
    if (NumberAt<int64_t>(request, ValuesAt(request) + kNextAt) == RowsOf(key)) rows_.erase(key);
  }

 private:
  std::map<uint64_t, int64_t> rows_;  // of the blocks, by key
};

// Protocol rule 39: a copy counts as complete after its first rows.
TEST_F(TablesTest, ACopyThatIsCompleteTooEarlyIsFound) {
  const auto filling = std::make_shared<Filling>();
  const auto plant = InRequests([filling](uint64_t key, TableRequest::Kind kind,
                                          std::string* request) {
    if (kind == TableRequest::Kind::kFill && filling->IsFilled(key)) {
      const int64_t rows = filling->RowsOf(key);
      std::memcpy(&(*request)[Filling::ValuesAt(*request) + Filling::kNextAt], &rows, sizeof(rows));
    }
    filling->See(key, kind, *request);
  });
  EXPECT_TRUE(IsFound(plant, Programs::kTables));
}

// Protocol rule 39: rows are copied without what the optimizer keeps for them.
TEST_F(TablesTest, ACopyWithoutStatesIsFound) {
  const auto has_states = std::make_shared<std::map<uint64_t, bool>>();
  const auto plant =
      InRequests([has_states](uint64_t key, TableRequest::Kind kind, std::string* request) {
        if (kind == TableRequest::Kind::kRefill)
          (*has_states)[key] = NumberAt<uint32_t>(*request, 32 + 12) > 0;
        const auto rows = NumberAt<int64_t>(*request, 16);
        if (kind != TableRequest::Kind::kFill || rows == 0 || !(*has_states)[key]) return;
        const size_t begin = Filling::ValuesAt(*request) + 2 * sizeof(uint64_t);
        const size_t row_bytes = (request->size() - begin) / rows, weight_bytes = row_bytes / 3;
        for (int64_t row = 0; row < rows; ++row) {
          const size_t states = begin + row * row_bytes + weight_bytes;
          std::memset(&(*request)[states], 0, row_bytes - weight_bytes);
        }
      });
  EXPECT_TRUE(IsFound(plant, Programs::kTables));
}

// Protocol rule 39: changes that are made while a copy is filled are not made there.
TEST_F(TablesTest, AChangeThatIsLostDuringFillingIsFound) {
  const auto filling = std::make_shared<Filling>();
  const auto plant =
      InRequests([filling](uint64_t key, TableRequest::Kind kind, std::string* request) {
        filling->See(key, kind, *request);
        if (kind != TableRequest::Kind::kUpdate || !filling->IsFilled(key)) return;
        const size_t begin = Filling::ValuesAt(*request);
        std::memset(request->data() + begin, 0, request->size() - begin);
      });
  EXPECT_TRUE(IsFound(plant, Programs::kTables));
}

// Protocol rule 41: a table is freed before the last worker has released it, which looks rows up.
TEST_F(TablesTest, ATableThatIsFreedTooEarlyIsFound) {
  const Plant plant = [](SimulatedNetwork* network) {
    const auto released = std::make_shared<std::set<uint64_t>>();
    InRequests([released](uint64_t key, TableRequest::Kind kind, std::string* request) {
      if (kind == TableRequest::Kind::kRelease) released->insert(key);
      if (kind != TableRequest::Kind::kState || released->count(key) == 0) return;
      const auto release = static_cast<uint32_t>(TableRequest::Kind::kRelease);  // worker 0's
      std::memcpy(request->data(), &release, sizeof(release));
    })(network);
  };
  EXPECT_TRUE(IsFound(plant, Programs::kTables));
}

}  // namespace
}  // namespace byteps
