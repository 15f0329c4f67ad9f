// Initial rows of a table: a function of the seed and the row alone, so that any server makes the
// same ones, whenever it needs them. Only additions, multiplications, divisions and square roots,
// which all machines round alike.
#pragma once

#include <cstdint>

#include "cc/base/table_request.h"

namespace byteps {

// The number in this column of this row of the whole table.
double InitialNumber(const TableSpec& spec, uint64_t row, uint64_t column);

}  // namespace byteps
