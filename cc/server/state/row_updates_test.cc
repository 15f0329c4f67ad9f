// Each rule against the formula of its optimizer, number for number and in double.
#include "cc/server/state/row_updates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

namespace byteps {
namespace {

using Kind = RowRule::Kind;

// Updates a number and its states.
using Formula = std::function<void(double rate, double g, double* w, std::vector<double>* s)>;

constexpr int kSteps = 5;
constexpr uint64_t kWidth = 3;

double Rate(int step) { return 0.5 / (1 + step); }
// Some of them 0.
double Gradient(int step, uint64_t i) { return (step * 5 + static_cast<int>(i) * 3) % 7 / 2.0 - 1; }

template <typename T>
void Compare(const RowRule& rule, const Formula& formula, double tolerance) {
  std::vector<T> row(kWidth * (1 + rule.NumStates()), T{0});
  std::vector<double> weights = {1, -2, 3};
  std::copy(weights.begin(), weights.end(), row.begin());
  if (rule.NumStates() > 0)
    std::fill_n(row.begin() + kWidth, kWidth, static_cast<T>(rule.first_state));
  std::vector<std::vector<double>> states(kWidth, std::vector<double>(rule.NumStates(), 0));
  for (std::vector<double>& each : states) {
    if (!each.empty()) each[0] = rule.first_state;
  }
  const RowUpdate<T> update = RowUpdateOf<T>(rule.kind);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<T> gradient;
    for (uint64_t i = 0; i < kWidth; ++i) gradient.push_back(static_cast<T>(Gradient(step, i)));
    update(rule, static_cast<T>(Rate(step)), gradient.data(), kWidth, row.data());
    for (uint64_t i = 0; i < kWidth; ++i) {
      formula(Rate(step), Gradient(step, i), &weights[i], &states[i]);
      EXPECT_NEAR(row[i], weights[i], tolerance) << "step " << step << ", number " << i;
      for (uint64_t state = 0; state < rule.NumStates(); ++state) {
        EXPECT_NEAR(row[(1 + state) * kWidth + i], states[i][state], tolerance)
            << "step " << step << ", number " << i << ", state " << state;
      }
    }
  }
}

void Compare(Kind kind, std::array<double, 5> numbers, double first_state, const Formula& formula) {
  RowRule rule;
  rule.kind = kind;
  rule.numbers = numbers;
  rule.first_state = first_state;
  Compare<double>(rule, formula, 1e-13);
  Compare<float>(rule, formula, 1e-5);
}

TEST(RowUpdatesTest, Sgd) {
  Compare(Kind::kSgd, {}, 0, [](double rate, double g, double* w, auto*) { *w -= rate * g; });
}

TEST(RowUpdatesTest, Adagrad) {
  Compare(Kind::kAdagrad, {0.01}, 0.1, [](double rate, double g, double* w, auto* s) {
    (*s)[0] += g * g;
    *w -= rate * g / std::sqrt((*s)[0] + 0.01);
  });
}

TEST(RowUpdatesTest, RowWiseAdagrad) {
  RowRule rule;
  rule.kind = Kind::kRowWiseAdagrad;
  rule.numbers = {0.5};
  double row[] = {1, 2, 7};  // two weights, and what is kept for both
  const double gradient[] = {1, -7};
  RowUpdateOf<double>(rule.kind)(rule, 2, gradient, 2, row);
  EXPECT_EQ(row[2], 7 + (1 + 49) / 2);
  EXPECT_DOUBLE_EQ(row[0], 1 - 2 / (std::sqrt(32) + 0.5));
  EXPECT_DOUBLE_EQ(row[1], 2 + 14 / (std::sqrt(32) + 0.5));
}

TEST(RowUpdatesTest, Momentum) {
  Compare(Kind::kMomentum, {0.75}, 0, [](double rate, double g, double* w, auto* s) {
    (*s)[0] = 0.75 * (*s)[0] - rate * g;
    *w += (*s)[0];
  });
}

TEST(RowUpdatesTest, NesterovMomentum) {
  Compare(Kind::kNesterov, {0.75}, 0, [](double rate, double g, double* w, auto* s) {
    (*s)[0] = 0.75 * (*s)[0] - rate * g;
    *w += 0.75 * (*s)[0] - rate * g;
  });
}

void AdamMoments(double g, std::vector<double>* s) {
  (*s)[0] = 0.75 * (*s)[0] + 0.25 * g;
  (*s)[1] = 0.9 * (*s)[1] + 0.1 * g * g;
}

TEST(RowUpdatesTest, Adam) {
  Compare(Kind::kAdam, {0.75, 0.9, 0.01}, 0, [](double rate, double g, double* w, auto* s) {
    AdamMoments(g, s);
    *w -= rate * (*s)[0] / (std::sqrt((*s)[1]) + 0.01);
  });
}

TEST(RowUpdatesTest, Amsgrad) {
  Compare(Kind::kAmsgrad, {0.75, 0.9, 0.01}, 0, [](double rate, double g, double* w, auto* s) {
    AdamMoments(g, s);
    (*s)[2] = std::max((*s)[2], (*s)[1]);
    *w -= rate * (*s)[0] / (std::sqrt((*s)[2]) + 0.01);
  });
}

TEST(RowUpdatesTest, Ftrl) {
  Compare(Kind::kFtrl, {0.5, 0.1, 0.2, 0.3, 0.4}, 0.1,
          [](double rate, double g, double* w, auto* s) {
            const double before = (*s)[0], after = before + g * g;
            const double sigma = (std::sqrt(after) - std::sqrt(before)) / rate;
            (*s)[0] = after;
            (*s)[1] += g + 2 * 0.3 * *w - sigma * *w;
            const double limited = std::min(0.1, std::max(-0.1, (*s)[1]));
            const double l2 = 0.2 + 0.4 / (2 * rate);
            *w = (limited - (*s)[1]) / (std::sqrt(after) / rate + 2 * l2);
          });
}

double Decayed(double average, double value) { return 0.75 * average + 0.25 * value; }

TEST(RowUpdatesTest, Rmsprop) {
  Compare(Kind::kRmsprop, {0.75, 0.01}, 0, [](double rate, double g, double* w, auto* s) {
    (*s)[0] = Decayed((*s)[0], g * g);
    *w -= rate * g / std::sqrt((*s)[0] + 0.01);
  });
}

TEST(RowUpdatesTest, RmspropWithMomentum) {
  Compare(Kind::kRmspropMomentum, {0.75, 0.01, 0.5}, 0,
          [](double rate, double g, double* w, auto* s) {
            (*s)[0] = Decayed((*s)[0], g * g);
            (*s)[1] = 0.5 * (*s)[1] + rate * g / std::sqrt((*s)[0] + 0.01);
            *w -= (*s)[1];
          });
}

TEST(RowUpdatesTest, CenteredRmsprop) {
  Compare(Kind::kRmspropCentered, {0.75, 0.01}, 0, [](double rate, double g, double* w, auto* s) {
    (*s)[0] = Decayed((*s)[0], g * g);
    (*s)[1] = Decayed((*s)[1], g);
    *w -= rate * g / std::sqrt((*s)[0] - (*s)[1] * (*s)[1] + 0.01);
  });
}

TEST(RowUpdatesTest, CenteredRmspropWithMomentum) {
  Compare(Kind::kRmspropCenteredMomentum, {0.75, 0.01, 0.5}, 0,
          [](double rate, double g, double* w, auto* s) {
            (*s)[0] = Decayed((*s)[0], g * g);
            (*s)[2] = Decayed((*s)[2], g);
            const double variance = (*s)[0] - (*s)[2] * (*s)[2];
            (*s)[1] = 0.5 * (*s)[1] + rate * g / std::sqrt(variance + 0.01);
            *w -= (*s)[1];
          });
}

TEST(RowUpdatesTest, Adadelta) {
  Compare(Kind::kAdadelta, {0.75, 0.01}, 0, [](double rate, double g, double* w, auto* s) {
    (*s)[0] = Decayed((*s)[0], g * g);
    const double change = -std::sqrt((*s)[1] + 0.01) / std::sqrt((*s)[0] + 0.01) * g;
    (*s)[1] = Decayed((*s)[1], change * change);
    *w += rate * change;
  });
}

}  // namespace
}  // namespace byteps
