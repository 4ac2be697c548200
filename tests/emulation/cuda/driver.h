// What the emulated CUDA driver (libcuda.so.1) does for itself and for the runtime above it
// (libcudart.so.13). All codes of errors are CUDA's, which both have in common.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulated {

enum Code : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  NOT_SUPPORTED = 801,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_ISOLATION = 905,
  CAPTURE_IMPLICIT = 906,
  UNKNOWN = 999,
};

struct Stream;
struct Event;
struct Graph;

// How a call of the runtime or the driver treats an error of a kernel that ran before.
enum class Tells {
  // It waits for the kernel, so it finds the error.
  AT_ONCE,
  // It is only put behind the kernel: told once another call has found the error.
  ONCE_FOUND,
};
Code standing_error(Tells tells);

const char* driver_name(int code);
const char* runtime_name(int code);
const char* description(int code);

Code count_devices(int* count);
Code check_device(int device);
int attribute(int device, int which);
size_t memory_of(int device);
const unsigned char* uuid_of(int device);
constexpr const char* NAME = "emulated GPU";
constexpr int VERSION = 13000;

// The device whose context is current in this thread, ALL_DEVICES (-1) for none.
extern thread_local int current_device;

Code allocate(void** address, size_t bytes);
Code release(void* address);
Code allocate_host(void** address, size_t bytes);
Code release_host(void* address);
Code free_memory(size_t* free, size_t* total);

// Kinds of copies, as the runtime numbers them.
enum class Direction { WITHIN_HOST = 0, TO_DEVICE = 1, TO_HOST = 2, WITHIN_DEVICE = 3, ANY = 4 };
Code copy(void* to, int to_device, const void* from, int from_device, size_t bytes, Direction, Stream*);
Code fill(void* address, int value, size_t bytes, Stream*);

Code make_stream(Stream** stream, bool blocks);
Code remove_stream(Stream* stream);
Code synchronize(Stream* stream);
Code synchronize_all();
Code make_event(Event** event);
Code remove_event(Event* event);
Code record(Event* event, Stream* stream);
Code synchronize(Event* event);
Code wait(Stream* stream, Event* event);
Code elapsed_ms(float* ms, Event* begin, Event* end);

Code begin_capture(Stream* stream);
Code end_capture(Stream* stream, Graph** graph);
Graph* copied(const Graph* graph);
Code remove_graph(Graph* graph);
Code launch_graph(const Graph* graph, Stream* stream);

}  // namespace emulated
