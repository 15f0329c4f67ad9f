#include "cc/coordinator/state/tensor_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace byteps {
namespace {

TensorDescription Tensor(const std::string& name, int64_t elements) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.shape = {elements};
  return tensor;
}

// Named t0, t1 and so on.
std::vector<TensorDescription> Tensors(int count, int64_t elements) {
  std::vector<TensorDescription> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(Tensor("t" + std::to_string(i), elements));
  return tensors;
}

JobDescription TwoServers() {
  JobDescription job;
  job.worker_hosts = {"a", "b"};
  job.server_hosts = {"c", "d"};
  return job;
}

// Parts of 16,000 bytes.
JobDescription JobOf(int32_t servers) {
  JobDescription job;
  job.worker_hosts = {"a", "b"};
  job.server_hosts.assign(servers, "c");
  job.options.flow.part_bytes = 16000;
  return job;
}

TEST(TensorTableTest, TooManyPartsAreRefusedAndLeaveNothingBehind) {
  TensorTable table(JobOf(2));
  TensorDescription bomb = Tensor("bomb", int64_t{1} << 48);
  bomb.dtype = DType::kInt8;
  EXPECT_EQ(table.Declare({bomb}, 1)[0].status.code(), StatusCode::kInvalidArgument);
  bomb.shape = {int64_t{1} << 40};
  const Status status = table.Declare({bomb}, 1)[0].status;
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("68719477 parts of 16000 bytes"), std::string::npos)
      << status.message();
  bomb.shape = {16000};
  EXPECT_TRUE(table.Declare({bomb}, 1)[0].status.ok()) << "the name is free";
}

TEST(TensorTableTest, AllTensorsTogetherHaveSoManyParts) {
  TensorTable table(JobOf(2));
  constexpr int64_t kMost = (int64_t{1} << 20) * 4000;  // elements of 2^20 parts
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(table.Declare({Tensor("t" + std::to_string(i), kMost)}, 1)[0].status.ok());
  EXPECT_EQ(table.Declare({Tensor("small", 1)}, 1)[0].status.code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(table.CutAgain(8000, false, 2).empty());
}

TEST(TensorTableTest, CutsAgainWhatWouldBeLonger) {
  TensorTable table(TwoServers());
  const auto before = table.Declare(
      {Tensor("long", 1000 * 1000), Tensor("other", 900 * 1000), Tensor("short", 100)}, 1);
  const std::vector<TableEntry> cut = table.CutAgain(40000, false, 2);
  ASSERT_EQ(cut.size(), 2u);
  double bytes[2] = {0, 0};
  for (const TableEntry& entry : cut) {
    const TableEntry& old = before[entry.tensor.name == "long" ? 0 : 1].row->entry;
    EXPECT_EQ(entry.variant, 1u);
    EXPECT_TRUE(entry.tensor.SameExchangeAs(old.tensor));
    EXPECT_EQ(entry.parts[0].server, old.parts[0].server);
    EXPECT_EQ(entry.parts[0].element_count, 10000u);
    uint64_t elements = 0;
    for (const PartPlacement& part : entry.parts) {
      elements += part.element_count;
      bytes[part.server] += part.element_count * 4;
    }
    EXPECT_EQ(elements, old.tensor.ElementCount());
  }
  EXPECT_NEAR(bytes[0] / bytes[1], 1, 0.02);
}

// Workers send in the order of declaration: servers that did not take turns in it would wait for
// each other.
TEST(TensorTableTest, ServersTakeTurnsAfterACutAsBefore) {
  JobDescription job = JobOf(8);
  job.options.flow.part_bytes = 0;
  TensorTable table(job);
  const std::vector<TensorDescription> tensors = Tensors(32, 1000 * 1000);
  table.Declare(tensors, 1);
  const std::vector<TableEntry> cut = table.CutAgain(150 * 1000, false, 2);
  ASSERT_EQ(cut.size(), tensors.size());
  std::vector<double> bytes(8, 0);
  for (size_t i = 0; i < cut.size(); ++i) {
    EXPECT_EQ(cut[i].tensor.name, tensors[i].name);
    for (const PartPlacement& part : cut[i].parts) {
      bytes[part.server] += part.element_count * 4;
      const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
      EXPECT_LE(*most - *least, 4 * 150 * 1000) << cut[i].tensor.name;
    }
  }
}

// One author decides (protocol rule 6).
TEST(TensorTableTest, WhoDeclaresLaterGetsTheFirstCut) {
  TensorTable table(TwoServers());
  table.Declare({Tensor("t", 1000 * 1000)}, 1);
  table.CutAgain(40000, false, 2);
  const auto again = table.Declare({Tensor("t", 1000 * 1000)}, 3);
  EXPECT_FALSE(again[0].added);
  EXPECT_EQ(again[0].row->entry.variant, 0u);
  EXPECT_EQ(again[0].row->update_id, 1u);
}

TEST(TensorTableTest, LaterTensorsFollowTheNewCut) {
  TensorTable table(TwoServers());
  table.Declare({Tensor("t", 1000 * 1000)}, 1);
  const TableEntry cut = table.CutAgain(40000, false, 2)[0];
  // Another shape of the same name: its parts live where those of the cut that is in use live.
  const auto other = table.Declare({Tensor("t", 500 * 1000), Tensor("u", 20000)}, 3);
  const TableEntry& shorter = other[0].row->entry;
  EXPECT_EQ(shorter.variant, 2u);
  ASSERT_EQ(shorter.parts.size(), 50u);
  for (size_t i = 0; i < shorter.parts.size(); ++i)
    EXPECT_EQ(shorter.parts[i].server, cut.parts[i].server);
  EXPECT_EQ(other[1].row->entry.parts.size(), 2u);
}

TEST(TensorTableTest, FixedPartsStay) {
  JobDescription job = TwoServers();
  job.options.flow.part_bytes = 80000;
  TensorTable table(job);
  table.Declare({Tensor("t", 1000 * 1000)}, 1);
  EXPECT_TRUE(table.CutAgain(40000, false, 2).empty());
}

TEST(TensorTableTest, OneCodecForAllThatLeaveItToTheCoordinator) {
  JobDescription job = TwoServers();
  job.options.flow.part_bytes = 80000;
  TensorTable table(job);
  const auto compressed = [](const std::string& name, const std::string& codec) {
    TensorDescription tensor = Tensor(name, 1000 * 1000);
    tensor.codec = codec;
    return tensor;
  };
  const TensorDescription automatic = compressed("auto", kAutoCodec);
  const auto before =
      table.Declare({automatic, compressed("raw", ""), compressed("other", "fp8")}, 1);
  EXPECT_EQ(before[0].row->entry.tensor.codec, kAutoCodec);
  EXPECT_TRUE(table.CutAgain(0, false, 2).empty()) << "they stay raw";
  const std::vector<TableEntry> chosen = table.CutAgain(0, true, 2);
  ASSERT_EQ(chosen.size(), 1u);
  EXPECT_EQ(chosen[0].tensor.codec, kAutoInt8Codec);
  EXPECT_TRUE(chosen[0].tensor.SameExchangeAs(automatic));
  EXPECT_EQ(chosen[0].variant, 1u);
  const auto later = table.Declare({compressed("later", kAutoCodec), automatic}, 3);
  EXPECT_EQ(later[0].row->entry.tensor.codec, kAutoInt8Codec);
  EXPECT_FALSE(later[1].added);
}

TEST(TensorTableTest, PartsOfALostServerMoveToTheOthers) {
  TensorTable table(JobOf(3));
  const std::vector<TensorDescription> tensors = Tensors(6, 40000);
  table.Declare(tensors, 1);
  table.Lose(1);
  const std::vector<TableEntry> moved = table.MoveParts(1);
  std::vector<uint64_t> elements(3);
  for (const TensorTable::Outcome& outcome : table.Declare(tensors, 2)) {
    for (const PartPlacement& part : outcome.row->entry.parts) {
      EXPECT_NE(part.server, 1);
      elements[part.server] += part.element_count;
    }
  }
  EXPECT_EQ(elements[0], elements[2]) << "both have got as much";
  for (const TableEntry& entry : moved) {
    const auto has_moved = [](const PartPlacement& part) { return part.version == 1; };
    EXPECT_TRUE(std::any_of(entry.parts.begin(), entry.parts.end(), has_moved));
  }
  EXPECT_NE(table.Declare({Tensor("new", 40000)}, 3)[0].row->entry.parts[0].server, 1);
}

// The workers have not been told of the first move.
TEST(TensorTableTest, PartsMoveOnceMoreUntilTheirPlaceIsSettled) {
  TensorTable table(JobOf(3));
  table.Declare({Tensor("t", 40000)}, 1);
  table.Lose(0);
  const std::vector<TableEntry> first = table.MoveParts(1);
  const int32_t other = first[0].parts[0].server == 1 ? 1 : 2;
  table.Lose(other);
  const std::vector<TableEntry> second = table.MoveParts(2);
  for (const PartPlacement& part : second[0].parts) {
    EXPECT_EQ(part.server, 3 - other);
    EXPECT_NE(part.version, 1u);
  }
  table.Settle();
  EXPECT_TRUE(table.MoveParts(3).empty());
}

TEST(TensorTableTest, AServerThatIsThereAgainGetsItsShare) {
  TensorTable table(JobOf(3));
  std::vector<TensorDescription> tensors = Tensors(6, 40000);
  tensors.push_back(Tensor("backed", 40000));
  tensors.back().average = true;
  tensors.back().backup_workers = 1;
  table.Declare({tensors.begin(), tensors.end() - 1}, 1);
  table.Lose(1);
  table.MoveParts(1);
  table.Settle();
  const TableEntry backed = table.Declare({tensors.back()}, 2)[0].row->entry;
  table.Return(1, "c");
  const std::vector<TableEntry> moved = table.MoveParts(2, /*evens_out=*/true);
  // Told once more, nothing else moves.
  const std::vector<TableEntry> again = table.MoveParts(2);
  ASSERT_EQ(again.size(), moved.size());
  table.Settle();
  std::vector<uint64_t> elements(3);
  for (const TensorTable::Outcome& outcome : table.Declare(tensors, 3)) {
    for (const PartPlacement& part : outcome.row->entry.parts)
      elements[part.server] += part.element_count;
  }
  for (const uint64_t each : elements) EXPECT_NEAR(each, 7 * 40000 / 3, 8000);
  for (size_t part = 0; part < backed.parts.size(); ++part) {
    EXPECT_EQ(table.row(backed).entry.parts[part].server, backed.parts[part].server)
        << "its history stays";
  }
  EXPECT_TRUE(table.MoveParts(3).empty());
}

TEST(TensorTableTest, ServersTakeTurnsAfterAReturn) {
  TensorTable table(JobOf(2));
  const std::vector<TensorDescription> tensors = Tensors(6, 40000);
  table.Declare(tensors, 1);
  table.Lose(1);
  table.MoveParts(1);
  table.Settle();
  table.Return(1, "c");
  table.MoveParts(2, /*evens_out=*/true);
  int64_t lead = 0;  // of server 0, in parts
  for (const TensorTable::Outcome& outcome : table.Declare(tensors, 2)) {
    for (const PartPlacement& part : outcome.row->entry.parts) {
      lead += part.server == 0 ? 1 : -1;
      EXPECT_LE(std::abs(lead), 1) << outcome.row->entry.tensor.name;
    }
  }
}

// A server that keeps something between rounds cannot be replaced (protocol rule 4).
TEST(TensorTableTest, HistoriesOfBackupWorkersCannotBeLost) {
  TensorTable table(JobOf(2));
  EXPECT_TRUE(table.CanLose(0));
  TensorDescription tensor = Tensor("t", 40000);
  tensor.average = true;
  tensor.backup_workers = 1;
  const int32_t server = table.Declare({tensor}, 1)[0].row->entry.parts[0].server;
  EXPECT_FALSE(table.CanLose(server));
}

// Of a quorum's sum a server keeps no more than the newest result, which workers have, too.
TEST(TensorTableTest, SumsOfAQuorumCanBeLost) {
  TensorTable table(JobOf(2));
  TensorDescription tensor = Tensor("t", 40000);
  tensor.backup_workers = 1;
  tensor.grace_ms = kAdaptiveGrace;
  table.Declare({tensor}, 1);
  EXPECT_TRUE(table.CanLose(0) && table.CanLose(1));
}

// Declares the two copies of each of so many blocks.
std::vector<TensorTable::Row*> DeclareBlocks(TensorTable* table, int32_t blocks) {
  std::vector<TensorTable::Row*> rows;
  for (int32_t block = 0; block < blocks; ++block) {
    for (int32_t copy = 0; copy < 2; ++copy) {
      TensorDescription tensor;
      tensor.name = "t/block " + std::to_string(block) + "/copy " + std::to_string(copy);
      tensor.kind = ExchangeKind::kTable;
      tensor.dtype = DType::kUInt8;
      tensor.shape = {-1};
      tensor.home = block + copy;
      rows.push_back(table->Declare({tensor}, 1)[0].row);
    }
  }
  return rows;
}

int32_t ServerOf(const TensorTable::Row* row) { return row->entry.parts[0].server; }

// Protocol rule 39.
TEST(TensorTableTest, ALostCopyOfABlockGoesToAServerWithoutTheOtherCopy) {
  TensorTable table(JobOf(4));
  const std::vector<TensorTable::Row*> rows = DeclareBlocks(&table, 4);
  std::vector<int32_t> before;
  for (const TensorTable::Row* row : rows) before.push_back(ServerOf(row));
  table.Lose(2);
  EXPECT_EQ(table.MoveParts(1).size(), 2u);
  std::vector<int> blocks(4);
  for (size_t i = 0; i < rows.size(); i += 2) {
    EXPECT_NE(ServerOf(rows[i]), ServerOf(rows[i + 1]));
    for (size_t copy = i; copy < i + 2; ++copy) {
      ++blocks[ServerOf(rows[copy])];
      EXPECT_TRUE(before[copy] == 2 || ServerOf(rows[copy]) == before[copy]);
    }
  }
  EXPECT_EQ(blocks[2], 0);
  for (const int server : {0, 1, 3}) EXPECT_LE(blocks[server], 3);
}

// Protocol rule 39: with one server left both copies are there, and the one without rows leaves it.
TEST(TensorTableTest, TheCopyWithoutRowsGoesToTheServerThatComesBack) {
  TensorTable table(JobOf(2));
  const std::vector<TensorTable::Row*> rows = DeclareBlocks(&table, 2);
  uint32_t version = 0;
  for (const int32_t server : {0, 1, 0}) {
    std::vector<int32_t> before;
    for (const TensorTable::Row* row : rows) before.push_back(ServerOf(row));
    table.Lose(server);
    EXPECT_EQ(table.MoveParts(++version).size(), 2u);
    table.Settle();
    for (const TensorTable::Row* row : rows) EXPECT_EQ(ServerOf(row), 1 - server);
    table.Return(server, "a");
    EXPECT_EQ(table.MoveParts(++version, /*evens_out=*/true).size(), 2u);
    table.Settle();
    // Those that have rows have stayed.
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(ServerOf(rows[i]), before[i]);
  }
}

}  // namespace
}  // namespace byteps
