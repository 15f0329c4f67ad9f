// Rows with their indices, as servers and workers get them: the first byte of an input is how long
// a row is.
#include "cc/base/coded_rows.h"
#include "cc/fuzz/fuzz.h"

namespace byteps {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  const std::vector<std::vector<int64_t>> lists = {
      {}, {0}, {1, 2, 3}, {127, 128, 1 << 20, int64_t{1} << 62}};
  for (const std::vector<int64_t>& indices : lists) {
    for (const uint8_t row_bytes : {0, 1, 8}) {
      const std::vector<uint8_t> head = EncodeRowIndices(indices);
      std::string seed(1, static_cast<char>(row_bytes));
      seed.append(head.begin(), head.end());
      seeds.push_back(seed + std::string(indices.size() * row_bytes, '\1'));
    }
  }
  return seeds;
}

}  // namespace byteps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace byteps;
  if (size == 0) return 0;
  const uint64_t row_bytes = data[0], bytes = size - 1;
  std::vector<int64_t> indices;
  uint64_t head_bytes = 0;
  if (!DecodeRowIndices(data + 1, bytes, row_bytes, &indices, &head_bytes).ok()) return 0;
  FuzzCheck(CanBeCodedRows(bytes, indices.size(), row_bytes), "the header would be accepted");
  FuzzCheck(head_bytes + indices.size() * row_bytes == bytes, "the rows are all that follows");
  for (size_t i = 0; i < indices.size(); ++i)
    FuzzCheck(indices[i] > (i == 0 ? -1 : indices[i - 1]), "indices ascend");
  const std::vector<uint8_t> again = EncodeRowIndices(indices);
  FuzzCheck(again.size() <= head_bytes, "no other code is shorter");
  return 0;
}
