#include "cc/codec/choice.h"

#include <algorithm>
#include <charconv>
#include <memory>

#include "cc/base/tensor_description.h"
#include "cc/codec/codec.h"

namespace byteps {
namespace {

constexpr char kStartStep[] = "start_step=";

// Takes the option out of the text, if it is there.
Status TakeStartStep(std::string* text, uint64_t* start_step) {
  const size_t option = text->find(kStartStep);
  const bool is_option = option != std::string::npos && option > 0 &&
                         std::string(":,").find((*text)[option - 1]) != std::string::npos;
  if (!is_option) return OkStatus();
  const size_t end = std::min(text->find(',', option), text->size());
  const std::string value = text->substr(option, end - option).substr(sizeof(kStartStep) - 1);
  const char* const last = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), last, *start_step);
  if (error != std::errc() || stop != last) {
    return InvalidArgument("codec \"" + *text + "\": start_step is \"" + value +
                           "\", must be a whole number");
  }
  const bool is_last = end == text->size();
  text->erase(option, end + 1 - option);
  if (is_last) text->pop_back();  // what was in front of it
  return OkStatus();
}

}  // namespace

std::string CodecChoice::name() const {
  if (start_step == 0) return codec;
  const char* const separator = codec.find(':') == std::string::npos ? ":" : ",";
  return codec + separator + kStartStep + std::to_string(start_step);
}

Status ParseChoice(const std::string& text, CodecChoice* choice) {
  std::string name = text;
  BYTEPS_RETURN_IF_ERROR(TakeStartStep(&name, &choice->start_step));
  choice->codec = name;
  if (name == kAutoCodec) return OkStatus();
  std::unique_ptr<Codec> codec;
  BYTEPS_RETURN_IF_ERROR(ParseCodec(name, &codec));
  choice->codec = codec->name();
  return OkStatus();
}

}  // namespace byteps
