// What a process says at its very end, if that is a good one.
//
// Python's atexit functions do not know the exit code: by then the SystemExit is gone. The C
// library knows it, but calls its functions when there is no interpreter any more. So the message
// is prepared in Python, and ZeroMQ, which needs no interpreter, sends it.
#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cc/python/bindings.h"

namespace py = pybind11;

namespace byteps {
namespace {

constexpr int kDontWait = 1;  // ZMQ_DONTWAIT

// ZeroMQ's functions, of the library that pyzmq uses, and what to call them with.
struct LastWords {
  int (*send)(void* socket, const void* data, size_t bytes, int flags) = nullptr;
  int (*close)(void* socket) = nullptr;
  int (*terminate)(void* context) = nullptr;
  void* socket = nullptr;
  void* context = nullptr;
  std::string message;
};

// Runs in exit(), after the interpreter. Waits as long as the socket lingers.
void SayLastWords(int code, void* given) {
  const auto* words = static_cast<LastWords*>(given);
  if (code != 0) return;
  words->send(words->socket, words->message.data(), words->message.size(), kDontWait);
  words->close(words->socket);
  words->terminate(words->context);
}

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr)
    throw EngineError{FailedPrecondition(std::string("ZeroMQ's library has no ") + name)};
}

void SendAtGoodEnd(const std::string& library, const py::object& socket, const py::object& context,
                   const py::bytes& message) {
  void* const opened = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (opened == nullptr)
    throw EngineError{FailedPrecondition("cannot open ZeroMQ's library: " + library)};
  auto words = std::make_unique<LastWords>();
  Find(opened, "zmq_send", &words->send);
  Find(opened, "zmq_close", &words->close);
  Find(opened, "zmq_ctx_term", &words->terminate);
  const auto address = [](const py::object& of) {
    return reinterpret_cast<void*>(of.attr("underlying").cast<uintptr_t>());
  };
  words->socket = address(socket);
  words->context = address(context);
  words->message = message;
  if (on_exit(&SayLastWords, words.get()) != 0)
    throw EngineError{ResourceExhausted("the C library takes no more functions for its exit")};
  // The process's to the end: the interpreter would close them when it goes away.
  words.release();  // NOLINT(bugprone-unused-return-value)
  socket.inc_ref();
  context.inc_ref();
}

}  // namespace

void DefineGoodEnd(py::module_& module) {
  module.def("send_at_good_end", &SendAtGoodEnd, py::arg("library"), py::arg("socket"),
             py::arg("context"), py::arg("message"),
             "Sends bytes by a ZeroMQ socket if this process ends with code 0, when it does. "
             "`library` is pyzmq's; `socket` and its `context` are not to be used any more.");
}

}  // namespace byteps
