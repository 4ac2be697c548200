// A stand-in for NVIDIA's runtime, libcudart.so.13, on the emulated driver.
#include <cstring>

#include "driver.h"

using namespace emulated;

namespace {

thread_local int last_error = SUCCESS;

int noted(Code code) {
  if (code) last_error = code;
  return code;
}

// Calls on devices tell what a kernel did wrong as well, once it was found.
Code on_device(int device) {
  if (Code code = check_device(device)) return code;
  return standing_error(Tells::ONCE_FOUND);
}

}  // namespace

// As CUDA 13 has it, whose names these are. What is not named here is zero.
struct cudaDeviceProp {
  char name[256];
  unsigned char uuid[16];
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int multiProcessorCount;
  int textures[41];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int abilities[9];
  size_t sharedMemPerBlockOptin;
  int rest[82];
};
static_assert(sizeof(cudaDeviceProp) == 1008 && offsetof(cudaDeviceProp, sharedMemPerBlockOptin) == 672);

#define CALL extern "C" int

CALL cudaGetDeviceCount(int* count) {
  Code code = count_devices(count);
  return noted(code ? code : standing_error(Tells::ONCE_FOUND));
}

CALL cudaGetDevice(int* device) {
  int count;
  if (Code code = count_devices(&count)) return noted(code);
  *device = current_device < 0 ? 0 : current_device;
  return noted(standing_error(Tells::ONCE_FOUND));
}

CALL cudaSetDevice(int device) {
  if (Code code = on_device(device)) return noted(code);
  current_device = device;
  return SUCCESS;
}

CALL cudaDeviceGetAttribute(int* value, int which, int device) {
  if (Code code = on_device(device)) return noted(code);
  if (which < 1 || which > 200) return noted(INVALID_VALUE);
  *value = attribute(device, which);
  return SUCCESS;
}

CALL cudaGetDeviceProperties(cudaDeviceProp* to, int device) {
  if (Code code = on_device(device)) return noted(code);
  *to = {};
  strcpy(to->name, NAME);
  memcpy(to->uuid, uuid_of(device), sizeof(to->uuid));
  to->totalGlobalMem = memory_of(device);
  auto of = [=](int which) { return attribute(device, which); };
  to->sharedMemPerBlock = of(8);
  to->regsPerBlock = of(12);
  to->warpSize = of(10);
  to->memPitch = of(11);
  to->maxThreadsPerBlock = of(1);
  for (int axis = 0; axis < 3; ++axis) {
    to->maxThreadsDim[axis] = of(2 + axis);
    to->maxGridSize[axis] = of(5 + axis);
  }
  to->totalConstMem = of(9);
  to->major = of(75);
  to->minor = of(76);
  to->textureAlignment = of(14);
  to->multiProcessorCount = of(16);
  to->pciBusID = of(33);
  to->asyncEngineCount = of(40);
  to->unifiedAddressing = of(41);
  to->memoryBusWidth = of(37);
  to->l2CacheSize = of(38);
  to->maxThreadsPerMultiProcessor = of(39);
  to->sharedMemPerMultiprocessor = of(81);
  to->regsPerMultiprocessor = of(82);
  to->sharedMemPerBlockOptin = of(97);
  return SUCCESS;
}

CALL cudaDriverGetVersion(int* version) {
  *version = VERSION;
  return SUCCESS;
}
CALL cudaRuntimeGetVersion(int* version) {
  *version = VERSION;
  return SUCCESS;
}

extern "C" const char* cudaGetErrorName(int code) { return runtime_name(code); }
extern "C" const char* cudaGetErrorString(int code) { return description(code); }

CALL cudaPeekAtLastError() {
  Code standing = standing_error(Tells::ONCE_FOUND);
  return standing ? standing : last_error;
}
CALL cudaGetLastError() {
  int code = cudaPeekAtLastError();
  last_error = SUCCESS;
  return code;
}

CALL cudaMalloc(void** address, size_t bytes) { return noted(allocate(address, bytes)); }
CALL cudaFree(void* address) { return noted(release(address)); }
CALL cudaMallocHost(void** address, size_t bytes) { return noted(allocate_host(address, bytes)); }
CALL cudaFreeHost(void* address) { return noted(release_host(address)); }
CALL cudaMemGetInfo(size_t* free, size_t* total) { return noted(free_memory(free, total)); }

CALL cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, Stream* stream) {
  if (kind < 0 || kind > 4) return noted(INVALID_VALUE);
  int device = current_device < 0 ? 0 : current_device;
  return noted(copy(to, device, from, device, bytes, Direction(kind), stream));
}
CALL cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, Stream* stream) {
  return noted(copy(to, to_device, from, from_device, bytes, Direction::WITHIN_DEVICE, stream));
}
CALL cudaMemsetAsync(void* address, int value, size_t bytes, Stream* stream) {
  return noted(fill(address, value, bytes, stream));
}

CALL cudaStreamCreate(Stream** stream) { return noted(make_stream(stream, true)); }
CALL cudaStreamCreateWithFlags(Stream** stream, unsigned flags) {
  constexpr unsigned NON_BLOCKING = 1;
  return noted(make_stream(stream, !(flags & NON_BLOCKING)));
}
CALL cudaStreamDestroy(Stream* stream) { return noted(remove_stream(stream)); }
CALL cudaStreamSynchronize(Stream* stream) { return noted(synchronize(stream)); }
CALL cudaStreamWaitEvent(Stream* stream, Event* event, unsigned) { return noted(wait(stream, event)); }
CALL cudaDeviceSynchronize() { return noted(synchronize_all()); }

CALL cudaEventCreate(Event** event) { return noted(make_event(event)); }
CALL cudaEventDestroy(Event* event) { return noted(remove_event(event)); }
CALL cudaEventRecord(Event* event, Stream* stream) { return noted(record(event, stream)); }
CALL cudaEventSynchronize(Event* event) { return noted(synchronize(event)); }
CALL cudaEventElapsedTime(float* ms, Event* begin, Event* end) { return noted(elapsed_ms(ms, begin, end)); }

CALL cudaStreamBeginCapture(Stream* stream, int) { return noted(begin_capture(stream)); }
CALL cudaStreamEndCapture(Stream* stream, Graph** graph) { return noted(end_capture(stream, graph)); }
// What is launched is a graph as well, which does not change any more.
CALL cudaGraphInstantiate(Graph** made, Graph* graph, unsigned long long) {
  *made = copied(graph);
  return noted(*made ? SUCCESS : INVALID_VALUE);
}
CALL cudaGraphLaunch(Graph* graph, Stream* stream) { return noted(launch_graph(graph, stream)); }
CALL cudaGraphDestroy(Graph* graph) { return noted(remove_graph(graph)); }
CALL cudaGraphExecDestroy(Graph* graph) { return noted(remove_graph(graph)); }
