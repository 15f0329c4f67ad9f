// SIGUSR1 asks for a stall report: also of a process whose Python does not run at present.
#pragma once

namespace byteps {

class StallSignal {
 public:
  // Handles SIGUSR1 from now on, unless somebody else does.
  static void Install();

  // Whether the signal has come since the last call.
  static bool Take();
};

}  // namespace byteps
