// Codecs by name.
#include <charconv>
#include <map>
#include <utility>

#include "cc/codec/cast_codec.h"
#include "cc/codec/fp8_codec.h"
#include "cc/codec/int4_codec.h"
#include "cc/codec/int8_codec.h"
#include "cc/codec/onebit_codec.h"

namespace byteps {
namespace {

using Options = std::map<std::string, uint64_t>;
using MadeCodec = std::unique_ptr<Codec>;

struct Entry {
  const char* name;
  Options defaults;  // all options that it has
  MadeCodec (*make)(const Options&);
};

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = {
      {"raw",
       {},
       [](const Options&) -> MadeCodec { return std::make_unique<CastCodec>(CodecId::kRaw); }},
      {"fp16",
       {},
       [](const Options&) -> MadeCodec { return std::make_unique<CastCodec>(CodecId::kFloat16); }},
      {"bf16",
       {},
       [](const Options&) -> MadeCodec { return std::make_unique<CastCodec>(CodecId::kBFloat16); }},
      {"int8",
       {{"block", 32}, {"stochastic", 0}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<Int8Codec>(options.at("block"), options.at("stochastic") == 1);
       }},
      {"fp8",
       {{"block", 128}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<Fp8Codec>(options.at("block"));
       }},
      {"int4",
       {{"block", 32}, {"feedback", 0}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<Int4Codec>(options.at("block"), options.at("feedback") == 1);
       }},
      {"onebit",
       {{"feedback", 1}},
       [](const Options& options) -> MadeCodec {
         return std::make_unique<OneBitCodec>(options.at("feedback") == 1);
       }},
  };
  return entries;
}

// Servers add in pieces of 4096 elements and multiples of it: blocks must not straddle them.
bool IsBlock(uint64_t value) { return value >= 32 && value <= 4096 && (value & (value - 1)) == 0; }

Status ParseOption(const std::string& text, const std::string& option, Options* options) {
  const size_t equals = option.find('=');
  const std::string name = option.substr(0, equals);
  const auto found = options->find(name);
  if (found == options->end()) {
    std::string known;
    for (const auto& [other, value] : *options) known += (known.empty() ? "" : ", ") + other;
    return InvalidArgument("codec \"" + text + "\": unknown option \"" + name +
                           "\"; known: " + (known.empty() ? "none" : known));
  }
  const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool parsed = error == std::errc() && end == value.data() + value.size() && !value.empty();
  const bool is_block = name == "block";
  if (!parsed || !(is_block ? IsBlock(number) : number <= 1)) {
    return InvalidArgument("codec \"" + text + "\": " + name + " is \"" + value + "\", must be " +
                           (is_block ? "a power of two from 32 to 4096" : "0 or 1"));
  }
  found->second = number;
  return OkStatus();
}

}  // namespace

std::vector<std::string> CodecNames() {
  std::vector<std::string> names;
  for (const Entry& entry : Entries()) names.emplace_back(entry.name);
  return names;
}

Status ParseCodec(const std::string& text, std::unique_ptr<Codec>* codec) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  for (const Entry& entry : Entries()) {
    if (name != entry.name) continue;
    Options options = entry.defaults;
    for (size_t begin = colon; begin != std::string::npos;) {
      const size_t end = text.find(',', begin + 1);
      const size_t length = end == std::string::npos ? end : end - begin - 1;
      BYTEPS_RETURN_IF_ERROR(ParseOption(text, text.substr(begin + 1, length), &options));
      begin = end;
    }
    *codec = entry.make(options);
    return OkStatus();
  }
  std::string known;
  for (const std::string& one : CodecNames()) known += (known.empty() ? "" : ", ") + one;
  return InvalidArgument("unknown codec \"" + name + "\"; known: " + known);
}

}  // namespace byteps
