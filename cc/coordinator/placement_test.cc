#include "cc/coordinator/placement.h"

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
// worker 2/20.
TEST(ServerSharesTest, FollowsTheMixedModeFormula) {
  const std::vector<double> shares =
      ServerShares({"w0", "w1", "w2", "w3"}, {"s0", "s1", "w0", "w1", "w2", "w3"});
  ASSERT_EQ(shares.size(), 6u);
  EXPECT_DOUBLE_EQ(shares[0], 0.3);
  EXPECT_DOUBLE_EQ(shares[1], 0.3);
  for (int i = 2; i < 6; ++i) EXPECT_DOUBLE_EQ(shares[i], 0.1);
}

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

TEST(PlacementTest, BalancesRealisticTensors) {
  Placement placement(ServerShares({"a", "b"}, {"c", "d"}), 4096000);
  uint64_t total = 0;
  for (const int64_t elements :
       {36864, 2359296, 1024, 25088 * 4096, 4096, 4096 * 4096, 4096 * 1000}) {
    placement.Place(Float32({elements}), nullptr);
    total += elements * 4;
  }
  const double worst = *std::max_element(placement.loads().begin(), placement.loads().end());
  EXPECT_LT(worst, 0.51 * static_cast<double>(total));
}

TEST(PlacementTest, IsDeterministic) {
  Placement a(ServerShares({"a", "b"}, {"c", "d", "e"}), 1000);
  Placement b(ServerShares({"a", "b"}, {"c", "d", "e"}), 1000);
  for (int i = 1; i < 50; ++i) {
    const auto x = a.Place(Float32({i * 37}), nullptr);
    const auto y = b.Place(Float32({i * 37}), nullptr);
    ASSERT_EQ(x.size(), y.size());
    for (size_t p = 0; p < x.size(); ++p) EXPECT_EQ(x[p].server, y[p].server);
  }
}

TEST(PlacementTest, VariantsOfAKeyKeepTheirOwners) {
  Placement placement(ServerShares({"a", "b"}, {"c", "d", "e"}), 16);
  TableEntry first;
  first.parts = placement.Place(Float32({9}), nullptr);
  placement.Place(Float32({100}), nullptr);
  const auto longer = placement.Place(Float32({21}), &first);
  ASSERT_EQ(longer.size(), 6u);
  for (size_t p = 0; p < first.parts.size(); ++p)
    EXPECT_EQ(longer[p].server, first.parts[p].server);
  const auto empty = placement.Place(Float32({0}), &first);
  ASSERT_EQ(empty.size(), 1u);
  EXPECT_EQ(empty[0].server, first.parts[0].server);
}

}  // namespace
}  // namespace byteps
