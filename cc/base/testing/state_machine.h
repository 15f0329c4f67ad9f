// For tests of state machines: each state with each event, and where the table of transitions says
// that it leads.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace byteps {

// An event that leads nowhere changes nothing.
template <class Row, size_t rows, class State>
State StateAfter(const Row (&table)[rows], State from, const std::string& event) {
  for (const Row& row : table) {
    if (row.from == from && row.event == event) return row.to;
  }
  return from;
}

// Calls `run` with each of `states` and the name of each event.
template <class Row, size_t rows, class Run>
void ForEachEvent(const Row (&table)[rows], const std::vector<decltype(Row::from)>& states,
                  const Run& run) {
  std::set<std::string> events;
  for (const Row& row : table) events.insert(row.event);
  for (const auto state : states) {
    for (const std::string& event : events) run(state, event);
  }
}

}  // namespace byteps
