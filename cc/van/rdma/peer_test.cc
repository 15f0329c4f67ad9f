// The Van and a peer of another make, tests/rdma/pyverbs_peer.py: what the wire carries is what the
// headers of this folder say. Needs a device, and in BYTEPS_TEST_PEER the peer's command line, with
// PORT for where the Van listens.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "cc/van/buffer_sink.h"
#include "cc/van/open_acceptor.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

// Sends every frame back as it is.
class Echo : public ConnectionHandler {
 public:
  Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>* sink) override {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override {
    const auto payload =
        std::make_shared<const std::string>(static_cast<BufferSink&>(*sink).Take());
    OutgoingFrame frame;
    frame.header = header;
    frame.payload = payload->data();
    frame.keep_alive = payload;
    connection.Send(std::move(frame));
    return OkStatus();
  }
  void OnClosed(Connection&, const Status& reason) override {
    ++(reason.code() == StatusCode::kInvalidArgument ? malformed_ : ended_);
  }
  std::atomic<int> ended_{0};
  std::atomic<int> malformed_{0};
};

TEST(RdmaPeerTest, TheWireIsWhatAnotherImplementationExpects) {
  const char* const peer = std::getenv("BYTEPS_TEST_PEER");
  if (peer == nullptr) GTEST_SKIP() << "no peer (BYTEPS_TEST_PEER)";
  VanOptions options;
  options.transport = Transport::kRdma;
  Echo echo;
  OpenAcceptor acceptor(&echo);
  const std::unique_ptr<Van> van = NewVan(options);
  Endpoint endpoint;
  const Status listening = van->Listen("127.0.0.1", 0, &acceptor, &endpoint);
  ASSERT_TRUE(listening.ok()) << listening.ToString();
  std::string command = peer;
  command.replace(command.find("PORT"), 4, std::to_string(endpoint.port));
  EXPECT_EQ(std::system(command.c_str()), 0);
  for (int i = 0; i < 1000 && echo.ended_ + echo.malformed_ < 5; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(echo.ended_, 1);
  EXPECT_EQ(echo.malformed_, 4);
  const VanCounters counters = van->counters();
  EXPECT_EQ(counters.frames_received, 36u);
  EXPECT_EQ(counters.rdma_bytes_received, counters.payload_bytes_received);
  EXPECT_EQ(counters.rdma_bytes_sent, counters.payload_bytes_sent);
  EXPECT_GT(counters.rdma_bytes_received, 2500000u);
}

}  // namespace
}  // namespace byteps
