#include "cc/worker/state/key_table.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

JobDescription Job() {
  JobDescription job;
  job.worker_hosts = {"host0", "host1"};
  job.server_hosts = {"host2", "host3"};
  return job;
}

TensorDescription Tensor(const std::string& name) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.shape = {6};
  return tensor;
}

// Parts of two and four elements, of servers 0 and 1.
TableEntry Entry(const std::string& name) {
  TableEntry entry;
  entry.tensor = Tensor(name);
  entry.key = KeyOfName(name);
  entry.parts.push_back({2, 0});
  entry.parts.push_back({4, 1});
  return entry;
}

class KeyTableTest : public testing::Test {
 protected:
  // As the exchange that a worker has begun and placed.
  std::shared_ptr<Exchange> Begin(KeyTable::Key* key) {
    ExchangeRequest request;
    request.tensor = Tensor(key->name);
    auto exchange = std::make_shared<Exchange>(std::move(request));
    exchange->Begin(key->next_round++, /*now_ns=*/0);
    exchange->Place(KeyTable::FindOrAddVariant(*key, Tensor(key->name)).entry, {});
    return key->live = exchange;
  }

  KeyTable::Key& Placed(const std::string& name) {
    KeyTable::Key& key = keys_.FindOrAdd(name);
    keys_.Declare(key, Tensor(name));
    EXPECT_TRUE(keys_.Place(key, Tensor(name), Entry(name)).ok());
    return key;
  }

  const JobDescription job_ = Job();
  KeyTable keys_{job_};
};

TEST_F(KeyTableTest, DeclaresTogetherWhatComesWhileARequestIsInFlight) {
  keys_.Declare(keys_.FindOrAdd("a"), Tensor("a"));
  const std::optional<DeclareRequest> first = keys_.NextRequest();
  ASSERT_TRUE(first.has_value());
  for (const char* name : {"b", "c", "b"}) keys_.Declare(keys_.FindOrAdd(name), Tensor(name));
  EXPECT_FALSE(keys_.NextRequest().has_value());

  DeclareReply reply;
  reply.request_id = first->request_id;
  reply.results.resize(1);
  std::vector<TensorDescription> declared;
  ASSERT_TRUE(keys_.TakeAnswered(reply, &declared).ok());
  ASSERT_EQ(declared.size(), 1u);
  EXPECT_EQ(declared[0].name, "a");

  const std::optional<DeclareRequest> second = keys_.NextRequest();
  ASSERT_TRUE(second.has_value());
  ASSERT_EQ(second->tensors.size(), 2u);
  EXPECT_EQ(second->tensors[0].name, "b");
  EXPECT_EQ(second->tensors[1].name, "c");
}

TEST_F(KeyTableTest, RefusesAnAnswerToNoRequest) {
  DeclareReply reply;
  reply.request_id = 7;
  std::vector<TensorDescription> declared;
  EXPECT_FALSE(keys_.TakeAnswered(reply, &declared).ok());
}

TEST_F(KeyTableTest, RefusesAnotherTensorThanTheOneDeclared) {
  KeyTable::Key& key = keys_.FindOrAdd("a");
  EXPECT_FALSE(keys_.Place(key, Tensor("a"), Entry("b")).ok());
  EXPECT_EQ(keys_.FindPlaced(KeyOfName("b")), nullptr);
}

TEST_F(KeyTableTest, UsesANewCutFromItsFirstRoundOn) {
  const KeyTable::Key& key = Placed("a");
  NewCut cut;
  cut.first_round = 5;
  cut.entry = Entry("a");
  cut.entry.variant = 1;
  ASSERT_TRUE(keys_.CutAgain(std::move(cut)).ok());
  ASSERT_EQ(key.variants.size(), 1u);
  EXPECT_EQ(key.variants[0].EntryFor(4)->variant, 0u);
  EXPECT_EQ(key.variants[0].EntryFor(5)->variant, 1u);
}

TEST_F(KeyTableTest, NamesPushesWithoutAnswerByPath) {
  const std::shared_ptr<Exchange> exchange = Begin(&Placed("a"));
  exchange->sent_on = {0, 1};
  EXPECT_TRUE(keys_.UnansweredOn(/*server=*/1, /*path=*/0).pushes.empty());
  const ResumeQuery query = keys_.UnansweredOn(/*server=*/1, /*path=*/1);
  ASSERT_EQ(query.pushes.size(), 1u);
  EXPECT_EQ(query.pushes[0].part, 1u);
  exchange->part_done[1] = true;
  EXPECT_TRUE(keys_.UnansweredOn(/*server=*/1, /*path=*/1).pushes.empty());
}

TEST_F(KeyTableTest, TellsOfAnIdleResultOnce) {
  KeyTable::Key& key = Placed("a");
  key.next_round = 1;
  key.ended_ns = 1;
  EXPECT_TRUE(keys_.NewIdleResults(/*now_ns=*/1'000'000'000).tensors.empty());
  const ResultProgress held = keys_.NewIdleResults(/*now_ns=*/6'000'000'000);
  ASSERT_EQ(held.tensors.size(), 1u);
  EXPECT_EQ(held.tensors[0].next_round, 1u);
  EXPECT_TRUE(keys_.NewIdleResults(/*now_ns=*/7'000'000'000).tensors.empty());
}

TEST(RequestedPartsTest, KeepsThoseOfOneRoundInTheOrderOfAsking) {
  RequestedParts requested;
  for (const uint32_t part : {5, 2, 5}) requested.Add(/*round=*/3, part);
  EXPECT_EQ(requested.Of(3), (std::vector<uint32_t>{5, 2}));
  EXPECT_TRUE(requested.Of(2).empty());
  requested.Add(/*round=*/4, 1);
  EXPECT_FALSE(requested.Has(3, 5));
  EXPECT_TRUE(requested.Has(4, 1));
}

TEST(RequestedPartsTest, KnowsWhetherSomethingIsAskedForOfARoundToCome) {
  RequestedParts requested;
  EXPECT_FALSE(requested.HasSince(0));
  requested.Add(/*round=*/3, 0);
  EXPECT_TRUE(requested.HasSince(2));
  EXPECT_TRUE(requested.HasSince(3));
  EXPECT_FALSE(requested.HasSince(4));
}

}  // namespace
}  // namespace byteps
