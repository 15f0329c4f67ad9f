#include "cc/coordinator/state/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace byteps {
namespace {

TensorDescription Float32(std::vector<int64_t> shape) {
  TensorDescription tensor;
  tensor.name = "t";
  tensor.shape = std::move(shape);
  return tensor;
}

using Parts = std::vector<uint64_t>;

TEST(CutTensorTest, CutsVectorsAtThePartSize) {
  EXPECT_EQ(CutTensor(Float32({}), 16), (Parts{1}));
  EXPECT_EQ(CutTensor(Float32({0}), 16), (Parts{0}));
  EXPECT_EQ(CutTensor(Float32({3}), 16), (Parts{3}));
  EXPECT_EQ(CutTensor(Float32({4}), 16), (Parts{4}));
  EXPECT_EQ(CutTensor(Float32({5}), 16), (Parts{4, 1}));
  EXPECT_EQ(CutTensor(Float32({13}), 16), (Parts{4, 4, 4, 1}));
}

TEST(CutTensorTest, CutsBetweenRowsWhereARowFits) {
  EXPECT_EQ(CutTensor(Float32({5, 3}), 28), (Parts{6, 6, 3}));
  EXPECT_EQ(CutTensor(Float32({2, 3}), 8), (Parts{2, 2, 2}));  // a row is larger than a part
}

TEST(CutTensorTest, APartHoldsAtLeastOneElement) {
  TensorDescription tensor = Float32({3});
  tensor.dtype = DType::kFloat64;
  EXPECT_EQ(CutTensor(tensor, 1), (Parts{1, 1, 1}));
}

TEST(CutTensorTest, NeverCutsAGather) {
  TensorDescription tensor = Float32({-1, 1000});
  tensor.kind = ExchangeKind::kGather;
  EXPECT_EQ(CutTensor(tensor, 16), (Parts{1000}));
}

TEST(ServerSharesTest, OneHostSharesAlike) {
  EXPECT_EQ(ServerShares({"a", "a"}, {"a", "a"}), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(ServerShares({"a"}, {"b", "c"}), (std::vector<double>{0.5, 0.5}));
}

// OSDI'20, section 3: n = 4, k = 2: D = 16 + 8 - 4 = 20; a server-only host sums 6/20, one beside a
// worker 2/20 (protocol rule 8).
TEST(ServerSharesTest, FollowsTheMixedModeFormula) {
  const std::vector<double> shares =
      ServerShares({"w0", "w1", "w2", "w3"}, {"s0", "s1", "w0", "w1", "w2", "w3"});
  ASSERT_EQ(shares.size(), 6u);
  EXPECT_DOUBLE_EQ(shares[0], 0.3);
  EXPECT_DOUBLE_EQ(shares[1], 0.3);
  for (int i = 2; i < 6; ++i) EXPECT_DOUBLE_EQ(shares[i], 0.1);
}

// More server hosts than worker hosts count as that many (protocol rule 8).
TEST(ServerSharesTest, WithEnoughServerOnlyHostsWorkersHostsSumNothing) {
  const std::vector<double> shares = ServerShares({"w0", "w1"}, {"s0", "s1", "s2", "w0"});
  EXPECT_DOUBLE_EQ(shares[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(shares[3], 0);
}

TEST(ServerSharesTest, ServersOfOneHostDivideItsShare) {
  const std::vector<double> shares = ServerShares({"w0", "w1"}, {"s0", "s0", "s1"});
  EXPECT_DOUBLE_EQ(shares[0], 0.25);
  EXPECT_DOUBLE_EQ(shares[1], 0.25);
  EXPECT_DOUBLE_EQ(shares[2], 0.5);
}

// Parts follow from the job, and not the other way round (protocol rule 7).
TEST(ChoosePartBytesTest, FollowsTheModelWithinLimits) {
  EXPECT_EQ(ChoosePartBytes(0, 2), 128u * 1024);
  EXPECT_EQ(ChoosePartBytes(uint64_t{128} << 20, 4), 256u << 10);
  EXPECT_EQ(ChoosePartBytes(uint64_t{1} << 40, 4), 512u << 10);
  EXPECT_EQ(ChoosePartBytes(uint64_t{64} << 20, 1), 1u << 20);
  EXPECT_EQ(ChoosePartBytes(uint64_t{1} << 40, 1), 4u << 20);
}

// Places each tensor in a list of its own.
std::vector<std::vector<PartPlacement>> PlaceOneByOne(Placement& placement,
                                                      const std::vector<TensorDescription>& list) {
  std::vector<std::vector<PartPlacement>> placed;
  for (const TensorDescription& tensor : list)
    placed.push_back(placement.Place({{&tensor, nullptr}})[0]);
  return placed;
}

double WorstShare(const Placement& placement) {
  const double total = std::accumulate(placement.loads().begin(), placement.loads().end(), 0.0);
  return *std::max_element(placement.loads().begin(), placement.loads().end()) / total;
}

TEST(PlacementTest, BalancesTensorsThatComeOneByOne) {
  Placement placement({"a", "b"}, {"c", "d"}, 4096000);
  std::vector<TensorDescription> list;
  for (const int64_t elements :
       {36864, 2359296, 1024, 25088 * 4096, 4096, 4096 * 4096, 4096 * 1000})
    list.push_back(Float32({elements}));
  PlaceOneByOne(placement, list);
  EXPECT_LT(WorstShare(placement), 0.51);
}

// How long they are is known only when rows come: they are counted, and other tensors do not
// matter.
TEST(PlacementTest, BlocksOfRowsAreSpreadOverAllServers) {
  Placement placement({"a", "b"}, {"c", "d", "e"}, 4096000);
  PlaceOneByOne(placement, {Float32({1000000})});
  TensorDescription block = Float32({-1, 64});
  block.kind = ExchangeKind::kRowSum;
  std::vector<int> blocks(3);
  for (int table = 0; table < 2; ++table) {
    for (int i = 0; i < 3; ++i) ++blocks[placement.Place({{&block, nullptr}})[0][0].server];
  }
  EXPECT_EQ(blocks, (std::vector<int>{2, 2, 2}));
}

// Tables whose first rows were gathered, each by one part, which is a block afterwards.
TEST(PlacementTest, BlocksOfRowsThatWereGatheredAreSpreadToo) {
  Placement placement({"a", "b"}, {"c", "d"}, 4096000);
  TensorDescription gather = Float32({-1, 64}), block = gather;
  gather.kind = ExchangeKind::kGather;
  block.kind = ExchangeKind::kRowSum;
  for (int table = 0; table < 6; ++table) {
    TableEntry first;
    first.tensor = gather;
    first.parts = placement.Place({{&gather, nullptr}})[0];
    const int32_t own = placement.Place({{&block, &first}})[0][0].server;
    EXPECT_EQ(own, first.parts[0].server);
    EXPECT_NE(placement.Place({{&block, nullptr}})[0][0].server, own) << table;
  }
}

// (protocol rule 38)
TEST(PlacementTest, NeighboringHomesOfTablesAreDifferentServers) {
  Placement placement({"a", "b"}, {"c", "c", "c"}, 0);
  placement.Lose(1);
  TensorDescription tensor = Float32({-1});
  tensor.kind = ExchangeKind::kTable;
  std::vector<int32_t> servers;
  for (tensor.home = 0; tensor.home < 4; ++tensor.home)
    servers.push_back(placement.Place({{&tensor}})[0][0].server);
  EXPECT_EQ(servers, (std::vector<int32_t>{0, 2, 0, 2}));
}

TEST(PlacementTest, ShortPartsOfAListFillWhatTheLongOnesLeave) {
  // Short ones first, then three long ones for two servers: one by one they cannot be balanced.
  std::vector<TensorDescription> list;
  for (int i = 0; i < 10; ++i) list.push_back(Float32({100000}));
  for (int i = 0; i < 3; ++i) list.push_back(Float32({1000000}));
  std::vector<Placement::Request> requests;
  for (const TensorDescription& tensor : list) requests.push_back({&tensor, nullptr});

  Placement one_by_one({"a", "b"}, {"c", "d"}, 4000000);
  PlaceOneByOne(one_by_one, list);
  EXPECT_GT(WorstShare(one_by_one), 0.6);

  Placement together({"a", "b"}, {"c", "d"}, 4000000);
  const auto placed = together.Place(requests);
  EXPECT_LT(WorstShare(together), 0.502);
  ASSERT_EQ(placed.size(), list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    ASSERT_EQ(placed[i].size(), 1u);
    EXPECT_EQ(placed[i][0].element_count, list[i].ElementCount()) << "in the order of the list";
  }
}

TEST(PlacementTest, ChoosesOnePartSizeForAList) {
  Placement placement({"a", "b"}, {"c", "d"}, 0);
  const TensorDescription large = Float32({31 << 20});  // 128 MB in all: parts of 512 KB
  const TensorDescription small = Float32({1 << 20});
  const auto placed = placement.Place({{&small, nullptr}, {&large, nullptr}});
  EXPECT_EQ(placed[0].size(), 8u);
  EXPECT_EQ(placed[1].size(), 248u);
  EXPECT_EQ(placement.Place({{&small, nullptr}})[0].size(), 8u) << "also for what comes later";
}

TEST(PlacementTest, CompressedPartsAreUpToFourTimesAsLong) {
  TensorDescription raw = Float32({64 << 20}), compressed = raw, undecided = raw;
  compressed.codec = "int8";
  undecided.codec = kAutoCodec;
  const auto first_part = [&](const std::vector<std::string>& hosts, uint64_t fixed, uint64_t most,
                              const TensorDescription& tensor) {
    Placement placement(hosts, {"server"}, fixed);
    placement.LimitParts(most);
    const auto placed = placement.Place({{&raw, nullptr}, {&tensor, nullptr}});
    return placed[1][0].element_count * sizeof(float);
  };
  const std::vector<std::string> two = {"a", "b"};
  constexpr uint64_t kKilobyte = 1 << 10;
  EXPECT_EQ(first_part(two, 0, 96 * kKilobyte, raw), 96 * kKilobyte);
  EXPECT_EQ(first_part(two, 0, 96 * kKilobyte, compressed), 384 * kKilobyte);
  EXPECT_EQ(first_part(two, 0, 96 * kKilobyte, undecided), 96 * kKilobyte);
  EXPECT_EQ(first_part(two, 0, 256 * kKilobyte, compressed), 512 * kKilobyte) << "no longer";
  EXPECT_EQ(first_part(two, 4096, 96 * kKilobyte, compressed), 4096u) << "is obeyed";
  EXPECT_EQ(first_part({"a", "a"}, 0, 96 * kKilobyte, compressed), 96 * kKilobyte) << "no link";
}

// Only what was declared decides, and in which order (protocol rule 6).
TEST(PlacementTest, IsDeterministic) {
  Placement a({"a", "b"}, {"c", "d", "e"}, 1000);
  Placement b({"a", "b"}, {"c", "d", "e"}, 1000);
  std::vector<TensorDescription> list;
  for (int i = 1; i < 50; ++i) list.push_back(Float32({i * 37}));
  const auto x = PlaceOneByOne(a, list), y = PlaceOneByOne(b, list);
  for (size_t i = 0; i < list.size(); ++i) {
    ASSERT_EQ(x[i].size(), y[i].size());
    for (size_t p = 0; p < x[i].size(); ++p) EXPECT_EQ(x[i][p].server, y[i][p].server);
  }
}

TEST(PlacementTest, VariantsOfAKeyKeepTheirOwners) {
  Placement placement({"a", "b"}, {"c", "d", "e"}, 16);
  const TensorDescription nine = Float32({9}), hundred = Float32({100}), more = Float32({21}),
                          none = Float32({0});
  TableEntry first;
  first.parts = placement.Place({{&nine, nullptr}})[0];
  placement.Place({{&hundred, nullptr}});
  const auto longer = placement.Place({{&more, &first}})[0];
  ASSERT_EQ(longer.size(), 6u);
  for (size_t p = 0; p < first.parts.size(); ++p)
    EXPECT_EQ(longer[p].server, first.parts[p].server);
  const auto empty = placement.Place({{&none, &first}})[0];
  ASSERT_EQ(empty.size(), 1u);
  EXPECT_EQ(empty[0].server, first.parts[0].server);
}

}  // namespace
}  // namespace byteps
