#include "cc/base/row_rule.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace byteps {
namespace {

using Names = std::array<const char*, std::tuple_size_v<decltype(RowRule::numbers)>>;

struct Form {
  const char* name;
  uint32_t states;
  Names numbers;  // names of those that it has
};

// By kind. Names are those that users give the optimizers and their arguments.
constexpr std::array<Form, RowRule::kNumKinds> kForms = {{
    {"SGD", 0, {}},
    {"Adagrad", 1, {"epsilon"}},
    {"RowWiseAdagrad", 1, {"epsilon"}},
    {"LazySGD with momentum", 1, {"momentum"}},
    {"LazySGD with Nesterov momentum", 1, {"momentum"}},
    {"LazyAdam", 2, {"beta_1", "beta_2", "epsilon"}},
    {"LazyAdam with AMSGrad", 3, {"beta_1", "beta_2", "epsilon"}},
    {"Ftrl", 2, {"minus power", "l1", "l2", "l2 shrinkage", "beta"}},
    {"RMSprop", 1, {"rho", "epsilon"}},
    {"RMSprop with momentum", 2, {"rho", "epsilon", "momentum"}},
    {"centered RMSprop", 2, {"rho", "epsilon"}},
    {"centered RMSprop with momentum", 3, {"rho", "epsilon", "momentum"}},
    {"Adadelta", 2, {"rho", "epsilon"}},
}};

const Form& FormOf(RowRule::Kind kind) { return kForms[static_cast<size_t>(kind)]; }

bool IsSaneNumber(double number) { return std::isfinite(number) && number >= 0; }

}  // namespace

uint32_t RowRule::NumStates() const { return FormOf(kind).states; }

bool RowRule::IsSane() const {
  return IsSaneNumber(first_state) && std::all_of(numbers.begin(), numbers.end(), IsSaneNumber);
}

Status RowRule::CheckRate(double rate) const {
  if (kind != Kind::kFtrl || rate > 0) return OkStatus();
  return InvalidArgument(
      "Ftrl divides by the learning rate, which must be above 0: give it a schedule that does not "
      "begin or end with 0");
}

std::string RowRule::ToString() const {
  const Form& form = FormOf(kind);
  std::ostringstream text;
  text << form.name;
  const char* before = " (";
  for (size_t i = 0; i < numbers.size() && form.numbers[i] != nullptr; ++i) {
    text << before << form.numbers[i] << " " << numbers[i];
    before = ", ";
  }
  if (first_state != 0) text << before << "accumulators from " << first_state;
  if (form.states > 0) text << ")";
  return text.str();
}

}  // namespace byteps
