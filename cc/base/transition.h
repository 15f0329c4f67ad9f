// Transition: a row of the table of a state machine. docs/states.md draws the tables, and tests
// compare what their classes do with them (cc/base/testing/state_machine.h).
#pragma once

namespace byteps {

template <typename State>
struct Transition {
  State from;
  const char* event;
  State to;
};

}  // namespace byteps
