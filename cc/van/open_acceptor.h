// OpenAcceptor: for tests: takes whoever knocks, for one handler, and counts them.
#pragma once

#include <atomic>
#include <string>

#include "cc/van/van.h"

namespace byteps {

class OpenAcceptor : public ConnectionAcceptor {
 public:
  explicit OpenAcceptor(ConnectionHandler* handler) : handler_(handler) {}
  Status OnHello(const Hello&, const std::string&, ConnectionHandler** handler) override {
    ++hellos;
    *handler = handler_;
    return OkStatus();
  }
  std::atomic<int> hellos{0};

 private:
  ConnectionHandler* const handler_;
};

}  // namespace byteps
