// For tests: a server that does with pushes what a test says, and the coordinator of its job of one
// worker.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/coordinator/coordinator.h"
#include "cc/coordinator/coordinator_link.h"
#include "cc/van/buffer_sink.h"

namespace byteps {

class ScriptedServer : private ConnectionAcceptor, private ConnectionHandler {
 public:
  // Called on an I/O thread, with all of a push.
  using OnPush = std::function<void(Connection& connection, const FrameHeader& header,
                                    std::shared_ptr<std::string> payload)>;

  explicit ScriptedServer(OnPush on_push)
      : van_(NewTcpVan(VanOptions())),
        link_([this](ControlMessage message) { OnControl(message); }, [](const Status&) {}),
        on_push_(std::move(on_push)) {}
  ~ScriptedServer() override {
    link_.Stop();
    van_->Stop();
  }

  // Once. The worker is to join the job that this returns, with rank 0.
  JobDescription StartJob(const EngineOptions& options) {
    coordinator_ = std::make_unique<Coordinator>(options);
    EXPECT_TRUE(coordinator_->Listen("127.0.0.1", 0).ok());
    JobDescription job;
    job.job_id = "job";
    job.options = options;
    job.worker_hosts = {"a"};
    job.server_hosts = {"b"};
    job.server_endpoints.resize(1);
    job.coordinator_endpoint = coordinator_->endpoint();
    EXPECT_TRUE(van_->Listen("127.0.0.1", 0, this, &job.server_endpoints[0]).ok());
    EXPECT_TRUE(coordinator_->Start(job).ok());
    EXPECT_TRUE(link_.Start(van_.get(), job, Role::kServer, 0).ok());
    return job;
  }

 private:
  void OnControl(const ControlMessage& message) {
    if (const auto* update = std::get_if<TableUpdate>(&message))
      link_.Send(TableAck{update->update_id});
  }
  Status OnHello(const Hello&, const std::string&, ConnectionHandler** handler) override {
    *handler = this;
    return OkStatus();
  }
  Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>* sink) override {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override {
    on_push_(connection, header,
             std::make_shared<std::string>(static_cast<BufferSink&>(*sink).Take()));
    return OkStatus();
  }
  void OnClosed(Connection&, const Status&) override {}

  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Van> van_;
  CoordinatorLink link_;
  const OnPush on_push_;
};

}  // namespace byteps
