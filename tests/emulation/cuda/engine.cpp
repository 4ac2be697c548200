// Runs the threads of kernels in turns, and finds what they do wrong.
//
// All threads of a block go on to the next barrier one after another, so what two of them do to an
// element between two barriers is not ordered, and what they do in different blocks never is. Each
// stretch from one barrier of a block to the next has a number, an epoch, which only grows. What was
// last done to an element is written as that number, the thread, whether other threads did it in the
// same epoch, and whether other blocks did.
#include "engine.h"

#include <csetjmp>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

Triple threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
namespace {

constexpr int WARP = 32;
constexpr size_t STACK = 256 << 10;

enum class State { RUNS, AT_BARRIER, AT_WARP, ENDED };

struct Copy {
  Region to, from;
  long at, first, bytes;
};

struct Thread {
  Triple index;
  State state;
  // Where in the source it waits.
  int line = 0;
  // What it gives to the other threads of its warp, of which lane it wants that, and what it gets:
  // that, and which lanes are there.
  uint64_t given = 0, taken = 0;
  int lane = 0;
  unsigned present = 0;
  // What its warp was called for: the same for all of its threads.
  uint64_t trail = 0;
  // Copies that it has begun: those of no group yet, and groups, the oldest first.
  std::vector<Copy> begun;
  std::vector<std::vector<Copy>> groups;
};

// A stack on which one thread after another runs, and where it stopped.
struct Fiber {
  jmp_buf stopped;
  bool started = false;
  ucontext_t first;
};

std::vector<Thread> threads;
std::vector<Fiber> fibers;
char* stacks;
int stack_count;
jmp_buf scheduler;
ucontext_t discarded;
Thread* current;
bool on_fibers;
void (*body)(void*);
void* body_given;
// What a thread did wrong. An exception does not leave the stack of the thread.
std::string wrong;

uint64_t epoch = 1, launch_begin = 1, block_begin = 1;

// The shared memory of a block, of the size that the launch asked for.
std::vector<char> shared_data;
std::vector<Touched> shared_touched;
std::vector<uint64_t> shared_copied;
char* shared_begin;
long static_bytes, dynamic_bytes;

constexpr uint64_t OTHERS = 1, OTHER_BLOCKS = 2;
uint64_t epoch_of(uint64_t access) { return access >> 12; }
uint64_t thread_of(uint64_t access) { return access >> 2 & 1023; }
uint64_t number() { return current - threads.data(); }

// What the current thread writes of itself, and the least that is written in this launch and block.
uint64_t mark, launch_floor, block_floor;

void go_on_with(Thread& thread) {
  current = &thread;
  threadIdx = thread.index;
  mark = epoch << 12 | number() << 2;
}

// Each block has shared memory of its own.
bool now(uint64_t access, bool is_shared) {
  return epoch_of(access) >= (is_shared ? block_begin : launch_begin);
}

// Whether something done by another thread is not ordered before what is done now.
bool unordered(uint64_t access, bool is_shared) {
  if (!now(access, is_shared)) return false;
  if (epoch_of(access) < block_begin || access & OTHER_BLOCKS) return true;
  return epoch_of(access) == epoch && (thread_of(access) != number() || access & OTHERS);
}

void note(uint64_t& access, bool is_shared) {
  uint64_t flags = 0;
  if (epoch_of(access) == epoch && (access & OTHERS || thread_of(access) != number())) flags |= OTHERS;
  if (now(access, is_shared) && (access & OTHER_BLOCKS || epoch_of(access) < block_begin)) flags |= OTHER_BLOCKS;
  access = epoch << 12 | number() << 2 | flags;
}

void check(const Region& region, long begin, long bytes, long alignment) {
  expect(0 <= begin && begin + bytes <= region.bytes, "an index out of bounds");
  expect(reinterpret_cast<uint64_t>(region.data + begin) % alignment == 0, "a vector that begins askew");
}

void expect_copied(const Region& region, long cell) {
  expect(!region.copied || region.copied[cell] < block_floor,
         "an element that is touched before the copy to it was waited for");
}

Touched& writable(const Region& region, long cell, uint64_t floor) {
  Touched& here = region.touched[cell];
  expect_copied(region, cell);
  if ((here.written < floor || here.written == mark) && (here.read < floor || here.read == mark)) return here;
  expect(!unordered(here.written, region.copied), "an element that two threads write");
  expect(!unordered(here.read, region.copied), "an element that is written while another thread reads it");
  return here;
}

void pause(State state) {
  if (!on_fibers) fail("a thread waits in a kernel whose threads do not wait");
  current->state = state;
  if (!_setjmp(fibers[number()].stopped)) _longjmp(scheduler, 1);
}

// One thread of every block and launch, until one does something wrong.
void fiber() {
  for (;;) {
    try {
      body(body_given);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    pause(State::ENDED);
  }
}

void resume(Fiber& fiber) {
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.stopped, 1);
  fiber.started = true;
  swapcontext(&discarded, &fiber.first);
}

// So many, each at its beginning.
void need_fibers(int count) {
  if (count > stack_count) {
    if (stacks) munmap(stacks, stack_count * STACK);
    void* made = mmap(nullptr, count * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) throw std::runtime_error("no memory for the stacks of threads");
    stacks = static_cast<char*>(made);
    stack_count = count;
    fibers.clear();
  }
  size_t page = sysconf(_SC_PAGESIZE);
  for (int i = fibers.size(); i < count; ++i) {
    fibers.emplace_back();
    // What is too much for a stack does not go into another one.
    mprotect(stacks + i * STACK, page, PROT_NONE);
  }
  for (int i = 0; i < count; ++i) {
    Fiber& each = fibers[i];
    if (each.started) continue;
    getcontext(&each.first);
    each.first.uc_stack.ss_sp = stacks + i * STACK;
    each.first.uc_stack.ss_size = STACK;
    each.first.uc_link = nullptr;
    makecontext(&each.first, fiber, 0);
  }
}

// The threads of a warp that wait for one another go on, those at the earliest place. Whether any did.
bool met(Thread* begin, Thread* end) {
  int line = 0;
  for (Thread* t = begin; t != end; ++t)
    if (t->state == State::AT_WARP && (!line || t->line < line)) line = t->line;
  if (!line) return false;
  unsigned present = 0;
  auto waits = [&](int lane) {
    return begin + lane < end && begin[lane].state == State::AT_WARP && begin[lane].line == line;
  };
  for (int lane = 0; lane < WARP; ++lane) present |= unsigned(waits(lane)) << lane;
  for (int lane = 0; lane < WARP; ++lane) {
    if (!(present >> lane & 1)) continue;
    Thread& t = begin[lane];
    // What a lane that is not there would give is undefined.
    memset(&t.taken, UNWRITTEN, sizeof(t.taken));
    if (present >> t.lane & 1) t.taken = begin[t.lane].given;
    t.present = present;
  }
  for (int lane = 0; lane < WARP; ++lane)
    if (present >> lane & 1) begin[lane].state = State::RUNS;
  return true;
}

// The threads of a block to its end, which wait for one another.
void run_in_turns() {
  int count = threads.size();
  for (;;) {
    for (int i = 0; i < count; ++i) {
      Thread& t = threads[i];
      if (t.state != State::RUNS) continue;
      go_on_with(t);
      resume(fibers[i]);
      if (wrong.empty()) continue;
      for (Fiber& each : fibers) each.started = false;
      throw std::runtime_error(wrong);
    }
    bool goes_on = false;
    for (int warp = 0; warp < count; warp += WARP)
      goes_on |= met(&threads[warp], threads.data() + (count < warp + WARP ? count : warp + WARP));
    if (goes_on) continue;
    ++epoch;
    bool apart = false;
    for (Thread& t : threads) apart |= t.state != threads[0].state || (t.state != State::ENDED && t.line != threads[0].line);
    if (apart) {
      for (Fiber& each : fibers) each.started = false;
      fail("a barrier that not all threads reach");
    }
    if (threads[0].state == State::ENDED) return;
    for (Thread& t : threads) t.state = State::RUNS;
  }
}

void run_one_by_one() {
  for (Thread& t : threads) {
    go_on_with(t);
    body(body_given);
  }
}

void begin_block() {
  block_begin = ++epoch;
  block_floor = block_begin << 12;
  // Numbers that no block before has left.
  memset(shared_begin, UNWRITTEN, static_bytes + dynamic_bytes);
  for (Thread& t : threads) {
    t.state = State::RUNS;
    t.trail = 0;
    t.begun.clear();
    t.groups.clear();
  }
}

struct Allocation {
  long bytes = 0;
  char* data = nullptr;
  int device = 0;
  Touched* touched = nullptr;
  // Bytes that one of `touched` stands for; 0: none yet.
  int element = 0;
};

std::map<uintptr_t, Allocation> allocations;
std::mutex memory_lock;

Allocation* allocation_at(const void* address, int device, long& offset) {
  auto next = allocations.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (next == allocations.begin()) return nullptr;
  auto& [begin, each] = *std::prev(next);
  offset = reinterpret_cast<uintptr_t>(address) - begin;
  bool of_device = each.device == ALL_DEVICES || each.device == device;
  return of_device && offset < each.bytes ? &each : nullptr;
}

}  // namespace

void fail(const char* what) {
  auto text = [](const Triple& t) {
    return std::to_string(t.x) + "," + std::to_string(t.y) + "," + std::to_string(t.z);
  };
  throw std::runtime_error(std::string(what) + " (block " + text(blockIdx) + ", thread " + text(threadIdx) + ")");
}

const char* reading(const Region& region, long begin, long bytes, long alignment) {
  check(region, begin, bytes, alignment);
  uint64_t floor = region.copied ? block_floor : launch_floor;
  for (long cell = begin >> region.shift; cell <= (begin + bytes - 1) >> region.shift; ++cell) {
    expect_copied(region, cell);
    Touched& here = region.touched[cell];
    // Nobody else has touched it: so it is most often.
    if ((here.written < floor || here.written == mark) && (here.read < floor || here.read == mark)) {
      here.read = mark;
      continue;
    }
    expect(!unordered(here.written, region.copied), "an element that is read while another thread writes it");
    note(here.read, region.copied);
  }
  return region.data + begin;
}

char* writing(const Region& region, long begin, long bytes, long alignment) {
  check(region, begin, bytes, alignment);
  uint64_t floor = region.copied ? block_floor : launch_floor;
  for (long cell = begin >> region.shift; cell <= (begin + bytes - 1) >> region.shift; ++cell) {
    Touched& here = writable(region, cell, floor);
    if (here.written < floor || here.written == mark)
      here.written = mark;
    else
      note(here.written, region.copied);
  }
  return region.data + begin;
}

void begin_copy(const Region& to, long at, const Region& from, long first, long bytes) {
  reading(from, first, bytes, bytes);
  check(to, at, bytes, bytes);
  for (long cell = at >> to.shift; cell <= (at + bytes - 1) >> to.shift; ++cell) {
    writable(to, cell, block_floor);
    note(to.copied[cell], true);
  }
  current->begun.push_back({to, from, at, first, bytes});
}

void commit_copies() {
  current->groups.push_back(std::move(current->begun));
  current->begun.clear();
}

// Until no more than the last `left` groups are on their way.
void wait_for_copies(size_t left) {
  auto& groups = current->groups;
  while (groups.size() > left) {
    for (const Copy& each : groups.front()) {
      const char* from = reading(each.from, each.first, each.bytes, each.bytes);
      for (long cell = each.at >> each.to.shift; cell <= (each.at + each.bytes - 1) >> each.to.shift; ++cell)
        each.to.copied[cell] = 0;
      memcpy(writing(each.to, each.at, each.bytes, each.bytes), from, each.bytes);
    }
    groups.erase(groups.begin());
  }
}

namespace {
Region of_shared(long begin, long bytes, int element) {
  Region region;
  region.data = shared_begin + begin;
  region.bytes = bytes;
  region.touched = shared_touched.data() + begin;
  region.copied = shared_copied.data() + begin;
  region.shift = __builtin_ctz(element & -element);
  return region;
}
}  // namespace

Region shared_region(long begin, long bytes, int element) {
  if (begin + bytes > static_bytes) fail("more shared memory than is known of the kernel");
  return of_shared(begin, bytes, element);
}

Region dynamic_region(int element) { return of_shared(static_bytes, dynamic_bytes, element); }

void barrier(int line) {
  current->line = line;
  pause(State::AT_BARRIER);
}

unsigned present(int line) {
  current->line = line, current->given = 0, current->lane = 0;
  pause(State::AT_WARP);
  return current->present;
}

uint64_t exchanged(int line, unsigned mask, uint64_t given, int to, int width) {
  int own = lane(), group = own / width;
  current->line = line, current->given = given;
  current->lane = to >= 0 && to / width == group ? to : own;
  pause(State::AT_WARP);
  expect(current->present == mask, "a shuffle that not all threads of its mask reach");
  return current->taken;
}

int lane() { return number() % WARP; }

void collective(const void* pointer, uint64_t more) {
  current->trail = current->trail * 1000003 + reinterpret_cast<uint64_t>(pointer) * 31 + more;
}

void run_blocks(const Kernel& kernel, const Launch& launch, void (*thread)(void*), void* given) {
  body = thread, body_given = given;
  on_fibers = kernel.pauses;
  wrong.clear();
  const Triple &grid = launch.grid, &block = launch.block;
  gridDim = grid, blockDim = block;
  static_bytes = (kernel.static_shared + 63) / 64 * 64, dynamic_bytes = launch.dynamic_shared;
  size_t shared = static_bytes + dynamic_bytes + 64;
  if (shared > shared_data.size()) {
    shared_data.resize(shared), shared_touched.resize(shared), shared_copied.resize(shared);
    shared_begin = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(shared_data.data()) + 63) / 64 * 64);
  }
  threads.resize(block.x * block.y * block.z);
  for (size_t i = 0; i < threads.size(); ++i)
    threads[i].index = {int(i % block.x), int(i / block.x % block.y), int(i / block.x / block.y)};
  launch_begin = ++epoch;
  launch_floor = launch_begin << 12;
  for (int z = 0; z < grid.z; ++z)
    for (int y = 0; y < grid.y; ++y)
      for (int x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        begin_block();
        if (on_fibers) {
          need_fibers(threads.size());
          run_in_turns();
        } else {
          run_one_by_one();
        }
        for (size_t i = 0; i < threads.size(); ++i)
          expect(threads[i].trail == threads[i / WARP * WARP].trail, "a warp that goes several ways");
      }
}

void add_memory(void* address, long bytes, char* data, int device) {
  std::lock_guard<std::mutex> guard(memory_lock);
  Allocation& each = allocations[reinterpret_cast<uintptr_t>(address)];
  free(each.touched);
  each = {bytes, data, device};
}

void remove_memory(void* address) {
  std::lock_guard<std::mutex> guard(memory_lock);
  auto each = allocations.find(reinterpret_cast<uintptr_t>(address));
  if (each == allocations.end()) return;
  free(each->second.touched);
  allocations.erase(each);
}

Found find_memory(const void* address, int device) {
  std::lock_guard<std::mutex> guard(memory_lock);
  long offset = 0;
  Allocation* each = allocation_at(address, device, offset);
  return each ? Found{each->data + offset, each->bytes - offset} : Found{};
}

void find_regions(Pointer* pointers, int count, int device) {
  std::lock_guard<std::mutex> guard(memory_lock);
  // What is known of its bytes is known by the smallest elements that this launch has there.
  std::map<Allocation*, int> elements;
  long offset = 0;
  for (Pointer* p = pointers; p != pointers + count; ++p)
    if (Allocation* each = allocation_at(p->address, device, offset)) {
      int bytes = p->element & -p->element;
      // Where an argument does not begin at a multiple of its elements, each byte counts.
      while (offset % bytes) bytes /= 2;
      int& least = elements.emplace(each, bytes).first->second;
      least = bytes < least ? bytes : least;
    }
  for (auto [each, bytes] : elements) {
    if (each->element == bytes) continue;
    free(each->touched);
    each->touched = static_cast<Touched*>(calloc(each->bytes / bytes + 1, sizeof(Touched)));
    if (!each->touched) throw std::runtime_error("no memory to know who touches the kernel's");
    each->element = bytes;
  }
  for (Pointer* p = pointers; p != pointers + count; ++p) {
    Allocation* each = allocation_at(p->address, device, offset);
    if (!each) continue;
    int shift = __builtin_ctz(each->element);
    *p->region = {each->data + offset, each->bytes - offset, each->touched + (offset >> shift), nullptr, shift};
  }
}

namespace {
std::vector<void*> kept;
}  // namespace

void* between(size_t bytes) {
  kept.push_back(malloc(bytes + 1));
  memset(kept.back(), UNWRITTEN, bytes);
  add_memory(kept.back(), bytes);
  return kept.back();
}

const char* outcome(void (*host)(void**), void** given) {
  static std::string told;
  const char* answer = nullptr;
  try {
    host(given);
  } catch (const std::exception& error) {
    told = error.what();
    answer = told.c_str();
  }
  for (auto& [begin, each] : allocations) free(each.touched);
  allocations.clear();
  for (void* each : kept) free(each);
  kept.clear();
  return answer;
}

}  // namespace emulated
