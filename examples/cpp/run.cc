// Runs a tuned network from C++, without Python: TVM's runtime (3 MB) is all that it needs.
//
//   run ARTIFACT INPUT.bin OUTPUT.bin
//
// INPUT.bin holds the network's first input, as little-endian numbers in C order; OUTPUT.bin gets
// its first output. `make` builds it. Compare the files of the artifact with
// the SHA-256 in its artifact.json before you load it: loading runs its code.

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

namespace {

constexpr size_t kAlignment = 64;  // kernels read whole vectors

struct Memory {
  void AllocData(DLTensor* tensor) {
    size_t size = (ffi::GetDataSize(*tensor) + kAlignment) / kAlignment * kAlignment;
    tensor->data = std::aligned_alloc(kAlignment, size);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

ffi::Tensor NewTensor(const json::Array& shape, DLDataType type) {
  std::vector<int64_t> extents;
  for (const ffi::Any& extent : shape) extents.push_back(extent.cast<int64_t>());
  return ffi::Tensor::FromNDAlloc(Memory(), ffi::Shape(extents), type, DLDevice{kDLCPU, 0});
}

ffi::Tensor Filled(const json::Array& shape, DLDataType type, const char* data, size_t size) {
  ffi::Tensor tensor = NewTensor(shape, type);
  if (ffi::GetDataSize(tensor) != size) throw std::runtime_error("the sizes do not agree");
  std::copy(data, data + size, static_cast<char*>(tensor.data_ptr()));
  return tensor;
}

// What the safetensors format calls its types.
DLDataType TypeOf(const std::string& name) {
  static const std::map<std::string, std::string> names = {
      {"F16", "float16"}, {"F32", "float32"}, {"F64", "float64"}, {"BOOL", "bool"},
      {"I8", "int8"},     {"I16", "int16"},   {"I32", "int32"},   {"I64", "int64"},
      {"U8", "uint8"},    {"U16", "uint16"},  {"U32", "uint32"},  {"U64", "uint64"}};
  return ffi::StringToDLDataType(names.at(name));
}

// The weights that the function `main` takes behind its inputs.
std::vector<ffi::Tensor> ReadWeights(const std::string& path) {
  std::string content = ReadFile(path);
  uint64_t length = *reinterpret_cast<const uint64_t*>(content.data());
  const char* data = content.data() + 8 + length;
  json::Object header = json::Parse(content.substr(8, length)).cast<json::Object>();
  auto text = header["__metadata__"].cast<json::Object>()["entries"].cast<ffi::String>();
  json::Object entries = json::Parse(text).cast<json::Object>();
  std::vector<ffi::Tensor> weights;
  for (const ffi::Any& number : entries["main"].cast<json::Array>()) {
    std::string name = std::to_string(number.cast<int64_t>());
    json::Object described = header[ffi::String(name)].cast<json::Object>();
    json::Array offsets = described["data_offsets"].cast<json::Array>();
    int64_t begin = offsets[0].cast<int64_t>(), end = offsets[1].cast<int64_t>();
    std::string type = described["dtype"].cast<ffi::String>();
    json::Array shape = described["shape"].cast<json::Array>();
    weights.push_back(Filled(shape, TypeOf(type), data + begin, end - begin));
  }
  return weights;
}

void Run(const std::string& artifact, const std::string& input_path, const std::string& output_path) {
  json::Object about = json::Parse(ReadFile(artifact + "/artifact.json")).cast<json::Object>();
  int64_t threads = about["target"].cast<json::Object>()["threads"].cast<int64_t>();
  setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 1);
  setenv("TVM_BIND_THREADS", "0", 1);

  ffi::Module library = ffi::Module::LoadFromFile(artifact + "/module.so");
  ffi::Module machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  constexpr int kPooled = 2;  // memory that a call frees is kept for the next one
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, kPooled);
  ffi::Function main = machine->GetFunction("main").value();

  json::Array input = about["network"].cast<json::Object>()["inputs"].cast<json::Array>()[0]
                          .cast<json::Array>();  // name, shape, type
  std::string values = ReadFile(input_path);
  std::vector<ffi::Tensor> tensors = {
      Filled(input[1].cast<json::Array>(), ffi::StringToDLDataType(input[2].cast<ffi::String>()),
             values.data(), values.size())};
  for (ffi::Tensor& weight : ReadWeights(artifact + "/module.safetensors")) tensors.push_back(weight);

  std::vector<ffi::AnyView> arguments(tensors.begin(), tensors.end());
  ffi::Any result;
  main.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  ffi::Tensor output = result.try_cast<ffi::Tensor>().has_value()
                           ? result.cast<ffi::Tensor>()
                           : result.cast<ffi::Array<ffi::Tensor>>()[0];
  std::ofstream file(output_path, std::ios::binary);
  file.write(static_cast<const char*>(output.data_ptr()), ffi::GetDataSize(output));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: run ARTIFACT INPUT.bin OUTPUT.bin\n";
    return 2;
  }
  try {
    Run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
