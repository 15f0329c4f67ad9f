// Residual: what error feedback keeps of a tensor from one exchange to the next.
#pragma once

#include <string>
#include <vector>

namespace byteps {

// What a worker has of a tensor's gradients still to send.
struct Residual {
  std::string codec;          // its full name
  std::vector<float> values;  // of the whole tensor, whatever its parts
};

}  // namespace byteps
