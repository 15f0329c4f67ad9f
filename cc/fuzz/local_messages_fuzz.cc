// Messages between the GPUs of a host.
#include "cc/fuzz/fuzz.h"
#include "cc/staging/local_messages.h"

namespace byteps {

std::vector<std::string> FuzzSeeds() {
  LaunchReport report;
  report.reason = Unavailable("gone");
  LogSlice slice;
  slice.entries.resize(2);
  slice.entries[0].rows = {1, 2, 3};
  return {EncodeLocal(GroupInvitation()), EncodeLocal(std::vector<LaunchReport>(2, report)),
          EncodeLocal(slice)};
}

}  // namespace byteps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace byteps;
  LocalMessage message;
  if (!DecodeLocal(std::string(reinterpret_cast<const char*>(data), size), &message).ok()) return 0;
  const std::string again = EncodeLocal(message);
  LocalMessage decoded;
  FuzzCheck(DecodeLocal(again, &decoded).ok(), "what was decoded can be encoded");
  FuzzCheck(EncodeLocal(decoded) == again, "no field is lost");
  return 0;
}
