#include "cc/worker/tensor_feedback.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cc/base/logging.h"

namespace byteps {
namespace {

TableEntry Entry(const std::string& codec, std::vector<uint64_t> lengths) {
  TableEntry entry;
  entry.tensor.name = "dense/kernel";
  entry.tensor.codec = codec;
  for (const uint64_t elements : lengths) entry.parts.push_back({elements, 0});
  return entry;
}

class TensorFeedbackTest : public ::testing::Test {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kInfo); }
  void TearDown() override { SetLogLevel(LogLevel::kWarning); }

  // Returns what it logs.
  std::string Renew(const TableEntry& entry, uint32_t epoch = 1) {
    testing::internal::CaptureStderr();
    RenewFeedback(entry, epoch, &feedback_);
    return testing::internal::GetCapturedStderr();
  }

  std::shared_ptr<TensorFeedback> feedback_;
};

constexpr const char* kOneBit = "onebit:feedback=1";
constexpr const char* kInt4 = "int4:block=32,feedback=1";

TEST_F(TensorFeedbackTest, IsThereForWhatWantsIt) {
  for (const char* codec :
       {"", "int8:block=32,stochastic=0", "int4:block=32,feedback=0", "onebit:feedback=0"}) {
    EXPECT_EQ(Renew(Entry(codec, {4096})), "");
    EXPECT_EQ(feedback_, nullptr) << codec;
  }
  EXPECT_EQ(Renew(Entry(kOneBit, {4096})), "");
  EXPECT_NE(feedback_, nullptr);
}

TEST_F(TensorFeedbackTest, StaysUntilCodecOrPartsChange) {
  Renew(Entry(kOneBit, {4096, 100}));
  const TensorFeedback* first = feedback_.get();
  EXPECT_EQ(Renew(Entry(kOneBit, {4096, 100})), "");
  EXPECT_EQ(feedback_.get(), first);
  for (const TableEntry& other :
       {Entry(kOneBit, {4096, 101}), Entry(kInt4, {4096, 101}), Entry(kOneBit, {4197}),
        Entry("int8:block=32,stochastic=0", {4197})}) {
    const std::shared_ptr<TensorFeedback> before = feedback_;
    const std::string log = Renew(other);
    EXPECT_NE(log.find("\"dense/kernel\" has another codec or other parts: its error feedback "
                       "begins at zero"),
              std::string::npos)
        << log;
    EXPECT_NE(feedback_, before);
  }
  EXPECT_EQ(feedback_, nullptr);
}

TEST_F(TensorFeedbackTest, TheLogSaysOnceThatWorkersHaveChanged) {
  Renew(Entry(kOneBit, {4096}), 1);
  feedback_ = nullptr;
  const std::string log = Renew(Entry(kOneBit, {4096}), 2);
  EXPECT_NE(log.find("WARNING"), std::string::npos) << log;
  EXPECT_NE(log.find("the workers have changed: error feedback of compressed gradients begins at "
                     "zero"),
            std::string::npos)
      << log;
  feedback_ = nullptr;
  EXPECT_EQ(Renew(Entry(kOneBit, {4096}), 2), "");
}

}  // namespace
}  // namespace byteps
