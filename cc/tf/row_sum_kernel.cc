// The rows of a table that the workers have, added up by the servers: one exchange for each block
// of the table's index space (base/coded_rows.h), each with a server of its own. Or gathered, and
// added up here, to the same bits: where that is better, and first of all to find that out
// (worker/row_choices.h).
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cc/tf/exchange_kernels.h"
#include "cc/tf/gathered_rows.h"
#include "cc/tf/row_blocks.h"
#include "cc/worker/worker.h"

namespace byteps {
namespace {

absl::Status WriteOutputs(const std::string& name, RowBlocks* all, OpKernelContext* context) {
  std::vector<IndexedRow> rows;
  TF_RETURN_IF_ERROR(ToAbslStatus(DecodeRowBlocks(name, all, &rows)));
  const auto count = static_cast<int64_t>(rows.size());
  Tensor *indices = nullptr, *values = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({count}), &indices));
  TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({count, all->width}), &values));
  auto* index = static_cast<int64_t*>(indices->data());
  auto* out = static_cast<uint8_t*>(values->data());
  for (const IndexedRow& row : rows) {
    *index++ = row.index;
    std::memcpy(out, row.row, all->row_bytes);
    out += all->row_bytes;
  }
  return absl::OkStatus();
}

// Rows that are gathered. Owned as RowBlocks are.
struct RowGather {
  std::vector<uint8_t> sent;
  std::unique_ptr<uint8_t[]> received;
  std::vector<int64_t> rows;  // of each worker that takes part
};

// What all that is needed of the operation, which may have ended.
struct RowsOfTable {
  std::string name;
  DType dtype;
  int64_t width = 0;
  bool average = false;
};

// How many different rows there are.
absl::Status AddGathered(const RowsOfTable& table, const RowGather& gather,
                         OpKernelContext* context, int64_t* different) {
  int64_t all = 0;
  for (const int64_t rows : gather.rows) all += rows;
  const std::vector<IndexedRow> sorted =
      SortRows(gather.received.get(), all, table.width * DTypeSize(table.dtype));
  *different = CountIndices(sorted);
  Tensor *indices = nullptr, *values = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({*different}), &indices));
  TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({*different, table.width}), &values));
  AddSortedRows(sorted, table.dtype, table.width, table.average ? gather.rows.size() : 1,
                static_cast<int64_t*>(indices->data()), static_cast<uint8_t*>(values->data()));
  return absl::OkStatus();
}

class RowSumOp : public AsyncOpKernel {
 public:
  explicit RowSumOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, ReadExchange(context, ReadRowSum, &exchange_));
    std::string by;
    OP_REQUIRES_OK(context, context->GetAttr("by", &by));
    chooses_ = by == "choice";
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& indices = context->input(kIndicesInput);
    const Tensor& rows = context->input(kRowsInput);
    const int64_t limit = context->input(kLimitInput).scalar<int64_t>()();
    OP_REQUIRES_ASYNC(
        context, indices.dims() == 1 && rows.dims() == 2 && indices.dim_size(0) == rows.dim_size(0),
        absl::InvalidArgumentError(
            "'" + exchange_.tensor.name + "': " + indices.shape().DebugString() +
            " indices do not belong to " + rows.shape().DebugString() + " rows"),
        done);
    const std::shared_ptr<Worker> worker = CurrentWorker();
    const auto* const index = static_cast<const int64_t*>(indices.data());
    const std::string& name = exchange_.tensor.name;
    const Status status = CheckRowIndices(name, index, indices.dim_size(0), limit);
    const bool gathers = chooses_ && worker != nullptr && !worker->row_choices().Sums(name);
    // The others' are right perhaps, and they wait.
    if (!status.ok() && worker != nullptr) {
      worker->GiveUpRounds(NamesOf(gathers ? 1 : NumBlocks(worker)),
                           "it refused the call: " + status.message());
      if (chooses_) worker->row_choices().Forget(name);
    }
    OP_REQUIRES_OK_ASYNC(context, ToAbslStatus(status), done);
    if (gathers) {
      return StartGather(worker, std::make_shared<PendingOperation>(context, std::move(done)),
                         PackRows(index, static_cast<const uint8_t*>(rows.data()), rows.dim_size(0),
                                  rows.dim_size(1) * DTypeSize(exchange_.tensor.dtype)),
                         rows, context->device()->tensorflow_cpu_worker_threads()->workers);
    }

    auto all = std::make_shared<RowBlocks>();
    all->width = rows.dim_size(1);
    all->row_bytes = all->width * DTypeSize(exchange_.tensor.dtype);
    EncodeRowBlocks(index, static_cast<const uint8_t*>(rows.data()), rows.dim_size(0),
                    NumBlocks(worker), all.get());
    Start(chooses_ ? worker : nullptr, std::make_shared<PendingOperation>(context, std::move(done)),
          std::move(all), context->device()->tensorflow_cpu_worker_threads()->workers);
  }

 private:
  static constexpr int kIndicesInput = 1;
  static constexpr int kRowsInput = 2;
  static constexpr int kLimitInput = 3;

  // Without a worker the engine refuses the exchange.
  static int32_t NumBlocks(const std::shared_ptr<Worker>& worker) {
    if (worker == nullptr) return 1;
    return std::clamp(worker->job().num_servers(), 1, kMostRowBlocks);
  }

  static void Forget(const std::weak_ptr<Worker>& chooser, const std::string& name) {
    const std::shared_ptr<Worker> here = chooser.lock();
    if (here != nullptr) here->row_choices().Forget(name);
  }

  std::vector<std::string> NamesOf(int32_t num_blocks) const {
    std::vector<std::string> names = {exchange_.tensor.name};
    for (int32_t block = 1; block < num_blocks; ++block)
      names.push_back(exchange_.tensor.name + "/" + std::to_string(block));
    return names;
  }

  // As Start. An index takes as many elements as have its bytes.
  void StartGather(const std::shared_ptr<Worker>& worker,
                   const std::shared_ptr<PendingOperation>& pending, std::vector<uint8_t> packed,
                   const Tensor& rows, tsl::thread::ThreadPool* threads) const {
    const RowsOfTable table{exchange_.tensor.name, exchange_.tensor.dtype, rows.dim_size(1),
                            exchange_.tensor.average};
    const auto size = static_cast<int64_t>(DTypeSize(table.dtype));
    const auto elements = static_cast<int64_t>(kRowIndexBytes) / size + table.width;
    auto gather = std::make_shared<RowGather>();
    gather->sent = std::move(packed);
    ExchangeRequest request;
    request.tensor = exchange_.tensor;
    request.tensor.kind = ExchangeKind::kGather;
    request.tensor.average = false;
    request.tensor.shape = {-1, 1, elements};  // not as BytePSGather's, which packs otherwise
    request.priority = exchange_.priority;
    request.gather_rows = rows.dim_size(0);
    request.input = gather->sent.data();
    request.allocate_output =
        [gather, bytes = elements * size](const std::vector<int64_t>& rows_of_workers) -> void* {
      uint64_t all = 0;
      for (const int64_t each : rows_of_workers) all += each * bytes;
      gather->rows = rows_of_workers;
      gather->received.reset(new (std::nothrow) uint8_t[std::max<uint64_t>(1, all)]);
      return gather->received.get();
    };
    request.keep_alive = gather;
    // Weak: the worker keeps its last exchanges.
    request.done = [chooser = std::weak_ptr<Worker>(worker), pending, gather, table,
                    threads](const Status& status) {
      if (!status.ok()) {
        Forget(chooser, table.name);
        return pending->EndWith(ToAbslStatus(status));
      }
      threads->Schedule([chooser, pending, gather, table] {
        pending->EndWith(pending->WithContext([&](OpKernelContext* context) {
          int64_t all = 0, different = 0;
          for (const int64_t rows_of_worker : gather->rows) all += rows_of_worker;
          TF_RETURN_IF_ERROR(AddGathered(table, *gather, context, &different));
          const auto workers = static_cast<int64_t>(gather->rows.size());
          const std::shared_ptr<Worker> here = chooser.lock();
          if (here != nullptr) here->row_choices().Note(table.name, workers, all, different);
          return absl::OkStatus();
        }));
      });
    };
    ShowInProfiler(&request);
    if (pending->RegisterCancellation()) Enqueue(std::move(request));
  }

  // The operation, and this kernel with it, may end at any time once it has begun. `chooser`
  // chooses anew after an error; null: nobody does.
  void Start(const std::shared_ptr<Worker>& chooser,
             const std::shared_ptr<PendingOperation>& pending, std::shared_ptr<RowBlocks> all,
             tsl::thread::ThreadPool* threads) const {
    const std::string name = exchange_.tensor.name;
    const auto count = static_cast<int32_t>(all->blocks.size());
    const std::vector<std::string> names = NamesOf(count);
    all->left = count;
    std::vector<ExchangeRequest> requests(count);
    for (int32_t i = 0; i < count; ++i) {
      RowBlock* const block = &all->blocks[i];
      ExchangeRequest& request = requests[i];
      request.tensor = exchange_.tensor;
      request.tensor.name = names[i];
      request.tensor.shape = {-1, all->width};
      request.priority = exchange_.priority;
      request.gather_rows = static_cast<int64_t>(block->indices.size());
      request.coded_bytes = block->sent.size();
      request.input = block->sent.data();
      request.allocate_output = [block](const std::vector<int64_t>& sum) -> void* {
        block->received_bytes = static_cast<uint64_t>(sum[1]);
        block->received.reset(new (std::nothrow) uint8_t[block->received_bytes]);
        return block->received.get();
      };
      request.keep_alive = all;
      request.done = [chooser = std::weak_ptr<Worker>(chooser), pending, all, name,
                      threads](const Status& status) {
        if (!status.ok()) {
          Forget(chooser, name);
          all->Note(status);
          if (IsDisagreement(status)) pending->EndWith(ToAbslStatus(status));
        }
        // The program may use the names again when the operation has ended.
        if (--all->left > 0) return;
        const Status error = all->FirstError();
        if (!error.ok()) return pending->EndWith(ToAbslStatus(error));
        // Rows are copied: not on a thread of the engine.
        threads->Schedule([pending, all, name] {
          pending->EndWith(pending->WithContext(
              [&](OpKernelContext* context) { return WriteOutputs(name, all.get(), context); }));
        });
      };
      ShowInProfiler(&request);
    }
    if (!pending->RegisterCancellation()) return;
    for (ExchangeRequest& request : requests) Enqueue(std::move(request));
  }

  NamedExchange exchange_;
  bool chooses_ = false;
};

REGISTER_KERNEL_BUILDER(Name("BytePSRowSum").Device(tensorflow::DEVICE_CPU), RowSumOp);
REGISTER_KERNEL_BUILDER(Name("BytePSRowSum")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("token")
                            .HostMemory("indices")
                            .HostMemory("rows")
                            .HostMemory("limit")
                            .HostMemory("sum_indices")
                            .HostMemory("sum_rows"),
                        RowSumOp);

}  // namespace
}  // namespace byteps
