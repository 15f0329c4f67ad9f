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
    RenewFeedback(entry, epoch, &feedback_, &restored_);
    return testing::internal::GetCapturedStderr();
  }

  std::shared_ptr<TensorFeedback> feedback_;
  std::unique_ptr<Residual> restored_;
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

TEST_F(TensorFeedbackTest, OtherPartsTakeItOver) {
  Renew(Entry(kOneBit, {3, 5}));
  const Residual all{kOneBit, {1, 2, 3, 4, 5, 6, 7, 8}};
  ASSERT_TRUE(feedback_->Begin(all));
  const std::shared_ptr<TensorFeedback> before = feedback_;
  EXPECT_EQ(Renew(Entry(kOneBit, {4, 4})), "");
  EXPECT_NE(feedback_, before);
  float second[4];
  feedback_->part(1).Read(4, second);
  EXPECT_EQ(std::vector<float>(second, second + 4), (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(feedback_->residual().values, all.values);
}

TEST_F(TensorFeedbackTest, GoesOnWithWhatWasSavedIfThatFits) {
  const auto restore = [&](const TableEntry& entry, Residual saved) {
    feedback_ = nullptr;
    restored_ = std::make_unique<Residual>(std::move(saved));
    const std::string log = Renew(entry);
    return std::make_pair(log, restored_ == nullptr);
  };
  const Residual saved{kOneBit, {1, 2, 3}};
  EXPECT_EQ(restore(Entry(kOneBit, {2, 1}), saved), std::make_pair(std::string(), true));
  EXPECT_EQ(feedback_->residual().values, saved.values);
  EXPECT_EQ(restore(Entry("", {3}), saved), std::make_pair(std::string(), false)) << "kept";
  EXPECT_EQ(Renew(Entry(kOneBit, {3})), "") << "when it is compressed";
  EXPECT_EQ(feedback_->residual().values, saved.values);
  Renew(Entry(kOneBit, {3}));
  restored_ = std::make_unique<Residual>(Residual{kOneBit, {7, 8, 9}});
  EXPECT_EQ(Renew(Entry(kOneBit, {3})), "") << "in place of what there is";
  EXPECT_EQ(feedback_->residual().values, (std::vector<float>{7, 8, 9}));
  const auto [log, is_taken] = restore(Entry(kInt4, {3}), saved);
  EXPECT_TRUE(is_taken);
  EXPECT_NE(log.find("\"dense/kernel\""), std::string::npos) << log;
  EXPECT_NE(log.find("3 elements of onebit:feedback=1: error feedback begins at zero"),
            std::string::npos)
      << log;
  EXPECT_EQ(restore(Entry(kOneBit, {4}), saved).first, "") << "said once";
  EXPECT_EQ(feedback_->residual().values, std::vector<float>(4));
}

TEST_F(TensorFeedbackTest, StaysUntilTheCodecChanges) {
  Renew(Entry(kOneBit, {4096, 100}));
  const TensorFeedback* first = feedback_.get();
  EXPECT_EQ(Renew(Entry(kOneBit, {4096, 100})), "");
  EXPECT_EQ(feedback_.get(), first);
  for (const TableEntry& other : {Entry(kInt4, {4096, 101}), Entry(kOneBit, {4197}),
                                  Entry("int8:block=32,stochastic=0", {4197})}) {
    const std::shared_ptr<TensorFeedback> before = feedback_;
    const std::string log = Renew(other);
    EXPECT_NE(log.find("\"dense/kernel\" has another codec: its error feedback begins at zero"),
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
