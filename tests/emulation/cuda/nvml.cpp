// The part of NVIDIA's management library that tunefleet asks. EMULATED_GPU_HELD_DOWN are the bits of
// what holds clocks down, EMULATED_GPU_OTHERS is how many other processes use the card.
#include <cstdlib>
#include <cstring>

namespace {
unsigned long long number(const char* name) {
  const char* text = getenv(name);
  return text ? strtoull(text, nullptr, 0) : 0;
}
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  *handle = nullptr;
  return strncmp(uuid, "GPU-", 4) ? 6 : 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = number("EMULATED_GPU_HELD_DOWN");
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* processes) {
  *count = number("EMULATED_GPU_OTHERS");
  for (unsigned i = 0; i < *count; ++i) processes[i] = {1 + i, 0, 0, 0};
  return 0;
}
}
