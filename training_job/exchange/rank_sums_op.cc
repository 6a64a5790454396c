// rank_sums as an operation of TensorFlow's graphs. It runs on the thread that calls it and waits there for the other
// ranks: of one graph no two may run at once, and every rank has to come to them in the same order.

#include <vector>

#include "rank_sums.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("LandfallRankSums")
    .Input("values: N * float")
    .Output("sums: N * float")
    .Attr("N: int >= 1")
    .Attr("factors: list(float)")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    });

class RankSumsOp : public OpKernel {
 public:
  explicit RankSumsOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("factors", &factors_));
    OP_REQUIRES(construction, factors_.size() == static_cast<size_t>(construction->num_inputs()),
                absl::InvalidArgumentError("factors should be one for each of values"));
  }

  void Compute(OpKernelContext* context) override {
    const int num_arrays = context->num_inputs();
    std::vector<const float*> inputs(num_arrays);
    std::vector<float*> outputs(num_arrays);
    std::vector<int64_t> lengths(num_arrays);
    for (int i = 0; i < num_arrays; ++i) {
      const Tensor& input = context->input(i);
      inputs[i] = input.flat<float>().data();
      lengths[i] = input.NumElements();
      // The input's own memory where nobody else holds it: a variable, a constant or another gradient may.
      Tensor* output = nullptr;
      OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({i}, i, input.shape(), &output));
      outputs[i] = output->flat<float>().data();
    }
    rank_sums(inputs.data(), outputs.data(), lengths.data(), factors_.data(), num_arrays);
  }

 private:
  std::vector<float> factors_;
};

REGISTER_KERNEL_BUILDER(Name("LandfallRankSums").Device(DEVICE_CPU), RankSumsOp);

}  // namespace
