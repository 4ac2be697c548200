// A stand-in for NVIDIA's driver, libcuda.so.1: a small GPU that is emulated on the CPU.
//
// Its addresses are pages that nobody may touch, so code of the host that takes one for its own
// memory ends by SIGSEGV as it does with a GPU; what is at an address is elsewhere. A kernel runs
// when it is launched. What a thread does wrong is an illegal address, which is told by the next
// call that waits for the kernel, and by every call of the process from then on.
#include "driver.h"

#include <ctime>
#include <deque>
#include <dlfcn.h>
#include <elf.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "engine.h"

namespace emulated {

struct Stream {
  // Whether it waits for the default stream and that for it.
  bool blocks = true;
  int device = 0;
  Graph* captured = nullptr;
  bool invalid = false;
};

struct Event {
  // By the clock of the host; 0 where it was never recorded.
  long ns = 0;
};

struct Graph {
  std::vector<std::function<void()>> steps;
};

thread_local int current_device = ALL_DEVICES;

namespace {

constexpr long KIB = 1 << 10;
constexpr long STATIC_SHARED = 48 * KIB, MOST_SHARED = 99 * KIB;
constexpr int MOST_THREADS = 1024;
constexpr size_t ALIGNMENT = 512;

struct Card {
  int number = 0;
  unsigned char uuid[16] = "emulated device";
  size_t bytes = 0;
  // What programs see, and what is there.
  char* addresses = nullptr;
  char* data = nullptr;
  // Free ranges: begin and size; sizes of what is in use.
  std::map<size_t, size_t> unused, used;
};

struct Module {
  void* library = nullptr;
  int file = -1;
  int device = 0;
};

struct Function {
  const Kernel* kernel;
  int device;
  long most_dynamic = 0;
  Module* module;
};

std::recursive_mutex lock;
using Guard = std::lock_guard<std::recursive_mutex>;

bool is_ready = false, is_forked = false, is_initialized = false;
std::vector<std::unique_ptr<Card>> cards;
std::set<Stream*> streams;
std::set<Event*> events;
std::set<Graph*> graphs;
std::set<Module*> modules;
std::map<std::pair<Module*, std::string>, std::unique_ptr<Function>> functions;
std::set<void*> pinned;
// Of all streams that record what they are given.
std::set<Stream*> capturing;
// What a kernel did wrong, and whether a call has told it.
std::string wrong;
bool is_told = false;

long environment_number(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}

std::string uuid_text(const unsigned char* uuid) {
  std::string text = "GPU-";
  char digits[3];
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    snprintf(digits, sizeof(digits), "%02x", uuid[i]);
    text += digits;
  }
  return text;
}

// The cards that CUDA_VISIBLE_DEVICES names, to the first name of none.
std::vector<int> visible(const std::vector<std::unique_ptr<Card>>& all) {
  std::vector<int> chosen;
  const char* names = getenv("CUDA_VISIBLE_DEVICES");
  if (!names) {
    for (auto& card : all) chosen.push_back(card->number);
    return chosen;
  }
  std::string rest = names;
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string name = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    name.erase(0, name.find_first_not_of(" "));
    name.erase(name.find_last_not_of(" ") + 1);
    int found = -1;
    for (auto& card : all) {
      bool is_uuid = name.size() > 4 && uuid_text(card->uuid).rfind(name, 0) == 0;
      if (is_uuid || std::to_string(card->number) == name) found = card->number;
    }
    if (found < 0) break;
    // A card that is named twice is no choice at all.
    for (int earlier : chosen)
      if (earlier == found) return {};
    chosen.push_back(found);
  }
  return chosen;
}

void make_ready() {
  if (is_ready) return;
  is_ready = true;
  pthread_atfork(nullptr, nullptr, [] { is_forked = !cards.empty(); });
  long count = environment_number("EMULATED_GPU_COUNT", 1);
  size_t bytes = environment_number("EMULATED_GPU_MEMORY", 64 * KIB * KIB) / ALIGNMENT * ALIGNMENT;
  std::vector<std::unique_ptr<Card>> all;
  for (long number = 0; number < count; ++number) {
    auto card = std::make_unique<Card>();
    card->number = number;
    card->uuid[15] = number;
    card->bytes = bytes;
    all.push_back(std::move(card));
  }
  for (int number : visible(all)) cards.push_back(std::move(all[number]));
}

// Room for its memory, once something is put there.
bool open(Card& card) {
  if (card.addresses) return true;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* addresses = mmap(nullptr, card.bytes, PROT_NONE, flags, -1, 0);
  void* data = mmap(nullptr, card.bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (addresses == MAP_FAILED || data == MAP_FAILED) return false;
  card.addresses = static_cast<char*>(addresses);
  card.data = static_cast<char*>(data);
  card.unused[0] = card.bytes;
  return true;
}

Code initialized() {
  make_ready();
  // A process that forks after CUDA was used has no CUDA.
  if (is_forked) return NOT_INITIALIZED;
  if (cards.empty()) return NO_DEVICE;
  // Every call of the runtime does what cuInit does.
  is_initialized = true;
  return SUCCESS;
}

// What a call for a stream of the process begins with.
Code ready(Tells tells) {
  if (Code code = initialized()) return code;
  if (current_device == ALL_DEVICES) current_device = 0;
  return standing_error(tells);
}

#define EXPECT_READY(tells) \
  if (Code code = ready(tells)) return code

// Calls that a stream cannot record, while any does.
Code not_captured() {
  if (capturing.empty()) return SUCCESS;
  for (Stream* each : capturing) each->invalid = true;
  return CAPTURE_UNSUPPORTED;
}

Code known(Stream* stream) {
  return !stream || streams.count(stream) ? SUCCESS : INVALID_HANDLE;
}

// Does something in the order of a stream, or records it.
Code in_order(Stream* stream, std::function<void()> step) {
  if (Code code = known(stream)) return code;
  if (!stream)
    for (Stream* each : capturing)
      if (each->blocks) {
        each->invalid = true;
        return CAPTURE_IMPLICIT;
      }
  if (stream && stream->captured) {
    if (stream->invalid) return CAPTURE_INVALIDATED;
    stream->captured->steps.push_back(std::move(step));
  } else if (wrong.empty()) {
    step();
  }
  return SUCCESS;
}

long now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

void run(const Function& function, const Launch& launch) {
  try {
    function.kernel->run(*function.kernel, launch);
  } catch (const std::exception& error) {
    wrong = std::string(function.kernel->name) + ": " + error.what();
  }
}

// The arguments of a launch, which a graph repeats.
struct Arguments {
  std::vector<std::vector<char>> values;
  std::vector<void*> pointers;

  Arguments(const Kernel& kernel, void** given) {
    for (int i = 0; i < kernel.arguments; ++i) {
      auto* begin = static_cast<char*>(given[i]);
      values.emplace_back(begin, begin + kernel.sizes[i]);
    }
    for (auto& each : values) pointers.push_back(each.data());
  }
};

Code launch(Function* function, Triple grid, Triple block, long dynamic, Stream* stream, void** arguments) {
  const Kernel& kernel = *function->kernel;
  bool positive = grid.x > 0 && grid.y > 0 && grid.z > 0 && block.x > 0 && block.y > 0 && block.z > 0;
  long threads = long(block.x) * block.y * block.z;
  if (!positive || grid.y > 65535 || grid.z > 65535 || block.z > 64) return INVALID_VALUE;
  if (threads > MOST_THREADS || (kernel.most_threads && threads > kernel.most_threads)) return INVALID_VALUE;
  long most = function->most_dynamic ? function->most_dynamic : STATIC_SHARED - kernel.static_shared;
  if (dynamic > most) return INVALID_VALUE;
  auto held = std::make_shared<Arguments>(kernel, arguments);
  return in_order(stream, [=] { run(*function, {grid, block, dynamic, held->pointers.data(), function->device}); });
}

// Bytes of an ELF file in memory, by its table of sections, which g++ puts last; 0 if it is none.
size_t size_of_image(const void* image) {
  const auto* head = static_cast<const Elf64_Ehdr*>(image);
  if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return head->e_shoff + size_t(head->e_shentsize) * head->e_shnum;
}

}  // namespace

Code standing_error(Tells tells) {
  if (wrong.empty()) return SUCCESS;
  if (tells == Tells::AT_ONCE) is_told = true;
  return is_told ? ILLEGAL_ADDRESS : SUCCESS;
}

Code count_devices(int* count) {
  Guard guard(lock);
  make_ready();
  *count = is_forked ? 0 : cards.size();
  return initialized();
}

Code check_device(int device) {
  Guard guard(lock);
  if (Code code = initialized()) return code;
  return 0 <= device && device < int(cards.size()) ? SUCCESS : INVALID_DEVICE;
}

int attribute(int device, int which) {
  static const std::map<int, int> values = {
      {1, MOST_THREADS}, {2, MOST_THREADS}, {3, MOST_THREADS}, {4, 64},  // threads, by axis
      {5, 2147483647}, {6, 65535}, {7, 65535},                           // blocks, by axis
      {8, STATIC_SHARED}, {97, MOST_SHARED}, {81, 100 * KIB}, {111, KIB},
      {9, 64 * KIB}, {10, 32}, {11, 2147483647}, {12, 65536}, {82, 65536},
      {13, 1000}, {36, 1000}, {37, 32},                                  // 1 MHz, in kHz
      {14, 512}, {16, 1}, {19, 1}, {38, 64 * KIB}, {39, MOST_THREADS}, {40, 1}, {41, 1},
      {75, 8}, {76, 0}, {106, 1},
  };
  if (which == 33) return cards[device]->number;
  auto found = values.find(which);
  return found == values.end() ? 0 : found->second;
}

size_t memory_of(int device) { return cards[device]->bytes; }
const unsigned char* uuid_of(int device) { return cards[device]->uuid; }

Code allocate(void** address, size_t bytes) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  if (Code code = not_captured()) return code;
  *address = nullptr;
  if (!bytes) return SUCCESS;
  Card& card = *cards[current_device];
  if (!open(card) || bytes > card.bytes) return OUT_OF_MEMORY;
  size_t taken = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  for (auto [begin, size] : card.unused) {
    if (size < taken) continue;
    card.unused.erase(begin);
    if (size > taken) card.unused[begin + taken] = size - taken;
    card.used[begin] = taken;
    // Numbers that no program has left.
    memset(card.data + begin, UNWRITTEN, bytes);
    *address = card.addresses + begin;
    add_memory(*address, bytes, card.data + begin, current_device);
    return SUCCESS;
  }
  return OUT_OF_MEMORY;
}

Code release(void* address) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  if (!address) return SUCCESS;
  if (Code code = not_captured()) return code;
  for (auto& card : cards) {
    size_t begin = static_cast<char*>(address) - card->addresses;
    auto found = card->used.find(begin);
    if (!card->addresses || begin >= card->bytes || found == card->used.end()) continue;
    size_t size = found->second;
    card->used.erase(found);
    remove_memory(address);
    // What is free side by side is one.
    auto next = card->unused.lower_bound(begin);
    if (next != card->unused.end() && next->first == begin + size) {
      size += next->second;
      next = card->unused.erase(next);
    }
    if (next != card->unused.begin() && std::prev(next)->first + std::prev(next)->second == begin)
      std::prev(next)->second += size;
    else
      card->unused[begin] = size;
    return SUCCESS;
  }
  return INVALID_VALUE;
}

Code allocate_host(void** address, size_t bytes) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  if (Code code = not_captured()) return code;
  *address = bytes ? aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
  if (!bytes) return SUCCESS;
  if (!*address) return OUT_OF_MEMORY;
  pinned.insert(*address);
  add_memory(*address, bytes, static_cast<char*>(*address), ALL_DEVICES);
  return SUCCESS;
}

Code release_host(void* address) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  if (!address) return SUCCESS;
  if (!pinned.erase(address)) return INVALID_VALUE;
  remove_memory(address);
  free(address);
  return SUCCESS;
}

Code free_memory(size_t* free, size_t* total) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  const Card& card = *cards[current_device];
  size_t used = 0;
  for (auto [begin, size] : card.used) used += size;
  *free = card.bytes - used, *total = card.bytes;
  return SUCCESS;
}

namespace {
// Where the bytes of a device are; nullptr where they are not all of one allocation.
char* on_device(const void* address, size_t bytes, int device) {
  Found found = find_memory(address, device);
  return found.bytes >= long(bytes) ? found.data : nullptr;
}
}  // namespace

Code copy(void* to, int to_device, const void* from, int from_device, size_t bytes, Direction direction, Stream* stream) {
  Guard guard(lock);
  bool to_host = direction == Direction::WITHIN_HOST || direction == Direction::TO_HOST;
  bool from_host = direction == Direction::WITHIN_HOST || direction == Direction::TO_DEVICE;
  // Nothing is left to be done when a copy to memory of the host that is not pinned returns.
  bool waits = to_host && !(stream && stream->captured);
  EXPECT_READY(waits ? Tells::AT_ONCE : Tells::ONCE_FOUND);
  if (!bytes) return SUCCESS;
  auto* target = static_cast<char*>(to);
  auto* source = static_cast<const char*>(from);
  if (direction == Direction::ANY) {
    char *there = on_device(to, bytes, to_device), *here = on_device(from, bytes, from_device);
    target = there ? there : target, source = here ? here : source;
  } else {
    if (!to_host) target = on_device(to, bytes, to_device);
    if (!from_host) source = on_device(from, bytes, from_device);
  }
  if (!target || !source) return INVALID_VALUE;
  return in_order(stream, [=] { memmove(target, source, bytes); });
}

Code fill(void* address, int value, size_t bytes, Stream* stream) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  if (!bytes) return SUCCESS;
  char* target = on_device(address, bytes, current_device);
  if (!target) return INVALID_VALUE;
  return in_order(stream, [=] { memset(target, value, bytes); });
}

Code make_stream(Stream** stream, bool blocks) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  *stream = new Stream{blocks, current_device};
  streams.insert(*stream);
  return SUCCESS;
}

Code remove_stream(Stream* stream) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  if (!streams.erase(stream)) return INVALID_HANDLE;
  capturing.erase(stream);
  delete stream->captured;
  delete stream;
  return SUCCESS;
}

Code synchronize(Stream* stream) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  if (Code code = known(stream)) return code;
  if (stream ? stream->captured != nullptr : !capturing.empty()) return not_captured();
  return SUCCESS;
}

Code synchronize_all() {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  return not_captured();
}

Code make_event(Event** event) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  events.insert(*event = new Event);
  return SUCCESS;
}

Code remove_event(Event* event) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  if (!events.erase(event)) return INVALID_HANDLE;
  delete event;
  return SUCCESS;
}

Code record(Event* event, Stream* stream) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  if (!events.count(event)) return INVALID_HANDLE;
  return in_order(stream, [=] {
    if (events.count(event)) event->ns = now_ns();
  });
}

Code synchronize(Event* event) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  return events.count(event) ? SUCCESS : INVALID_HANDLE;
}

// Everything before has been done already. Streams that are recorded do not wait for others here.
Code wait(Stream* stream, Event* event) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  if (!events.count(event)) return INVALID_HANDLE;
  return in_order(stream, [] {});
}

Code elapsed_ms(float* ms, Event* begin, Event* end) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  if (!events.count(begin) || !events.count(end) || !begin->ns || !end->ns) return INVALID_HANDLE;
  *ms = (end->ns - begin->ns) * 1e-6f;
  return SUCCESS;
}

Code begin_capture(Stream* stream) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  if (!stream) return CAPTURE_UNSUPPORTED;
  if (Code code = known(stream)) return code;
  if (stream->captured) return INVALID_VALUE;
  stream->captured = new Graph, stream->invalid = false;
  capturing.insert(stream);
  return SUCCESS;
}

Code end_capture(Stream* stream, Graph** graph) {
  Guard guard(lock);
  EXPECT_READY(Tells::AT_ONCE);
  *graph = nullptr;
  if (!stream || known(stream) || !stream->captured) return CAPTURE_UNMATCHED;
  capturing.erase(stream);
  std::unique_ptr<Graph> made(stream->captured);
  stream->captured = nullptr;
  if (stream->invalid) return CAPTURE_INVALIDATED;
  graphs.insert(*graph = made.release());
  return SUCCESS;
}

Graph* copied(const Graph* graph) {
  Guard guard(lock);
  if (!graphs.count(const_cast<Graph*>(graph))) return nullptr;
  return *graphs.insert(new Graph(*graph)).first;
}

Code remove_graph(Graph* graph) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  if (!graphs.erase(graph)) return INVALID_VALUE;
  delete graph;
  return SUCCESS;
}

Code launch_graph(const Graph* graph, Stream* stream) {
  Guard guard(lock);
  EXPECT_READY(Tells::ONCE_FOUND);
  if (!graphs.count(const_cast<Graph*>(graph))) return INVALID_VALUE;
  for (const auto& step : graph->steps)
    if (Code code = in_order(stream, step)) return code;
  return SUCCESS;
}

// Names and texts of errors.

namespace {
struct Named {
  const char *driver, *runtime, *text;
};

const std::map<int, Named> names = {
    {SUCCESS, {"CUDA_SUCCESS", "cudaSuccess", "no error"}},
    {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue", "invalid argument"}},
    {OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "out of memory"}},
    {NOT_INITIALIZED, {"CUDA_ERROR_NOT_INITIALIZED", "cudaErrorInitializationError", "initialization error"}},
    {NO_DEVICE, {"CUDA_ERROR_NO_DEVICE", "cudaErrorNoDevice", "no CUDA-capable device is detected"}},
    {INVALID_DEVICE, {"CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice", "invalid device ordinal"}},
    {INVALID_IMAGE, {"CUDA_ERROR_INVALID_IMAGE", "cudaErrorInvalidKernelImage", "device kernel image is invalid"}},
    {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized", "invalid device context"}},
    {NO_BINARY_FOR_GPU, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "cudaErrorNoKernelImageForDevice",
                         "no kernel image is available for execution on the device"}},
    {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle", "invalid resource handle"}},
    {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound", "named symbol not found"}},
    {NOT_READY, {"CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "device not ready"}},
    {ILLEGAL_ADDRESS, {"CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress",
                       "an illegal memory access was encountered"}},
    {LAUNCH_OUT_OF_RESOURCES, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "cudaErrorLaunchOutOfResources",
                               "too many resources requested for launch"}},
    {NOT_SUPPORTED, {"CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported", "operation not supported"}},
    {CAPTURE_UNSUPPORTED, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cudaErrorStreamCaptureUnsupported",
                           "operation not permitted when stream is capturing"}},
    {CAPTURE_INVALIDATED, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cudaErrorStreamCaptureInvalidated",
                           "operation failed due to a previous error during capture"}},
    {CAPTURE_UNMATCHED, {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "cudaErrorStreamCaptureUnmatched",
                         "capture was not initiated in this stream"}},
    {CAPTURE_IMPLICIT, {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "cudaErrorStreamCaptureImplicit",
                        "operation would make the legacy stream depend on a capturing blocking stream"}},
    {UNKNOWN, {"CUDA_ERROR_UNKNOWN", "cudaErrorUnknown", "unknown error"}},
};

const Named* named(int code) {
  auto found = names.find(code);
  return found == names.end() ? nullptr : &found->second;
}
}  // namespace

const char* driver_name(int code) { return named(code) ? named(code)->driver : nullptr; }
const char* runtime_name(int code) { return named(code) ? named(code)->runtime : "unrecognized error code"; }

// What a kernel did wrong stands behind CUDA's own words.
const char* description(int code) {
  static thread_local std::string text;
  Guard guard(lock);
  text = named(code) ? named(code)->text : "unrecognized error code";
  if (code == ILLEGAL_ADDRESS && !wrong.empty()) text += " (" + std::string(NAME) + ", " + wrong + ")";
  return text.c_str();
}

}  // namespace emulated

// What CUDA calls these.

using namespace emulated;

struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  Stream* stream;
  void* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

#define CALL extern "C" Code
// Calls on devices, after cuInit.
#define EXPECT_INITIALIZED(device)               \
  if (!is_initialized) return NOT_INITIALIZED;   \
  if (Code code = check_device(device)) return code
// Calls on the context of this thread.
#define EXPECT_CONTEXT(tells)                                     \
  if (Code code = initialized()) return code;                     \
  if (current_device == ALL_DEVICES) return INVALID_CONTEXT;      \
  if (Code code = standing_error(tells)) return code

CALL cuInit(unsigned flags) {
  Guard guard(lock);
  return flags ? INVALID_VALUE : initialized();
}

CALL cuDriverGetVersion(int* version) {
  *version = VERSION;
  return SUCCESS;
}

CALL cuDeviceGetCount(int* count) {
  if (!is_initialized) return NOT_INITIALIZED;
  return count_devices(count);
}

CALL cuDeviceGet(int* device, int number) {
  EXPECT_INITIALIZED(number);
  *device = number;
  return SUCCESS;
}

CALL cuDeviceGetName(char* name, int size, int device) {
  EXPECT_INITIALIZED(device);
  snprintf(name, size, "%s", NAME);
  return SUCCESS;
}

CALL cuDeviceGetUuid(unsigned char* uuid, int device) {
  EXPECT_INITIALIZED(device);
  memcpy(uuid, uuid_of(device), 16);
  return SUCCESS;
}
CALL cuDeviceGetUuid_v2(unsigned char* uuid, int device) { return cuDeviceGetUuid(uuid, device); }

CALL cuDeviceGetAttribute(int* value, int which, int device) {
  EXPECT_INITIALIZED(device);
  if (which < 1 || which > 200) return INVALID_VALUE;
  *value = attribute(device, which);
  return SUCCESS;
}

CALL cuDeviceTotalMem_v2(size_t* bytes, int device) {
  EXPECT_INITIALIZED(device);
  *bytes = memory_of(device);
  return SUCCESS;
}
CALL cuDeviceTotalMem(size_t* bytes, int device) { return cuDeviceTotalMem_v2(bytes, device); }

CALL cuDevicePrimaryCtxRetain(void** context, int device) {
  EXPECT_INITIALIZED(device);
  *context = reinterpret_cast<void*>(intptr_t(device) + 1);
  return SUCCESS;
}
CALL cuDevicePrimaryCtxRelease_v2(int device) {
  EXPECT_INITIALIZED(device);
  return SUCCESS;
}
CALL cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }

CALL cuCtxSetCurrent(void* context) {
  int device = int(reinterpret_cast<intptr_t>(context)) - 1;
  if (device != ALL_DEVICES) {
    EXPECT_INITIALIZED(device);
  }
  current_device = device;
  return SUCCESS;
}
CALL cuCtxGetCurrent(void** context) {
  *context = reinterpret_cast<void*>(intptr_t(current_device) + 1);
  return SUCCESS;
}
CALL cuCtxSynchronize() {
  EXPECT_CONTEXT(Tells::AT_ONCE);
  return synchronize_all();
}

CALL cuMemGetInfo_v2(size_t* free, size_t* total) {
  EXPECT_CONTEXT(Tells::AT_ONCE);
  return free_memory(free, total);
}
CALL cuMemGetInfo(size_t* free, size_t* total) { return cuMemGetInfo_v2(free, total); }

CALL cuGetErrorName(int code, const char** name) {
  *name = driver_name(code);
  return *name ? SUCCESS : INVALID_VALUE;
}
CALL cuGetErrorString(int code, const char** text) {
  *text = driver_name(code) ? description(code) : nullptr;
  return *text ? SUCCESS : INVALID_VALUE;
}

CALL cuModuleLoadData(Module** module, const void* image) {
  Guard guard(lock);
  EXPECT_CONTEXT(Tells::AT_ONCE);
  if (Code code = not_captured()) return code;
  size_t bytes = size_of_image(image);
  if (!bytes) return INVALID_IMAGE;
  auto made = std::make_unique<Module>();
  made->device = current_device;
  made->file = memfd_create("cubin", MFD_CLOEXEC);
  if (made->file < 0) return OUT_OF_MEMORY;
  // The file stays open: a library of this path would be taken for it.
  bool is_written = write(made->file, image, bytes) == ssize_t(bytes);
  std::string path = "/proc/self/fd/" + std::to_string(made->file);
  made->library = is_written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  auto* arch = static_cast<const int*>(made->library ? dlsym(made->library, "emulated_arch") : nullptr);
  int own = 10 * attribute(current_device, 75) + attribute(current_device, 76);
  if (!arch || *arch / 10 != own / 10 || *arch > own) {
    // A cubin of nvcc, say.
    if (made->library) dlclose(made->library);
    close(made->file);
    return NO_BINARY_FOR_GPU;
  }
  modules.insert(*module = made.release());
  return SUCCESS;
}

CALL cuModuleUnload(Module* module) {
  Guard guard(lock);
  EXPECT_CONTEXT(Tells::AT_ONCE);
  if (!modules.erase(module)) return INVALID_HANDLE;
  for (auto each = functions.begin(); each != functions.end();)
    each = each->first.first == module ? functions.erase(each) : std::next(each);
  dlclose(module->library);
  close(module->file);
  delete module;
  return SUCCESS;
}

CALL cuModuleGetFunction(Function** function, Module* module, const char* name) {
  Guard guard(lock);
  EXPECT_CONTEXT(Tells::ONCE_FOUND);
  if (!modules.count(module)) return INVALID_HANDLE;
  std::string symbol = std::string("emulated_") + name;
  auto* kernel = static_cast<const Kernel*>(dlsym(module->library, symbol.c_str()));
  if (!kernel) return NOT_FOUND;
  auto& made = functions[{module, name}];
  if (!made) made.reset(new Function{kernel, module->device, 0, module});
  *function = made.get();
  return SUCCESS;
}

CALL cuFuncSetAttribute(Function* function, int which, int value) {
  constexpr int MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
  Guard guard(lock);
  EXPECT_CONTEXT(Tells::ONCE_FOUND);
  if (which != MAX_DYNAMIC_SHARED_SIZE_BYTES) return NOT_SUPPORTED;
  if (value < 0 || value + function->kernel->static_shared > MOST_SHARED) return INVALID_VALUE;
  function->most_dynamic = value;
  return SUCCESS;
}

CALL cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** arguments, void** extra) {
  Guard guard(lock);
  EXPECT_CONTEXT(Tells::ONCE_FOUND);
  if (config->attribute_count || extra) return NOT_SUPPORTED;
  auto triple = [](const unsigned* from) { return Triple{int(from[0]), int(from[1]), int(from[2])}; };
  return launch(function, triple(config->grid), triple(config->block), config->shared_bytes, config->stream, arguments);
}

CALL cuTensorMapEncodeTiled(...) { return NOT_SUPPORTED; }
