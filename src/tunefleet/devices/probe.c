/* What measures on a machine that answers TVM's RPC and has nothing of this package.
 *
 * It is compiled for that machine and uploaded into each session. Arguments are those of TVM's
 * calling convention (tvm_ffi's TVMFFIAny); of the runtime's own functions none is called, so that
 * any server can load it. A negative result is the negated errno of what failed.
 *
 * A stock server serves nobody any more once a session's process has died by a signal. So fatal
 * signals, and the alarm that ends what hangs, write why into a file and exit with 0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int32_t type;
    uint32_t unused;
    union {
        int64_t integer;
        double number;
        void *pointer;
    } value;
} Any;

/* DLPack's tensor. */
typedef struct {
    void *data;
    int32_t device_type, device_id, dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef int Function(void *self, const Any *arguments, int32_t count, Any *result);

enum { INTEGER = 1, TENSOR = 7, TENSOR_OBJECT = 70, OBJECT_HEADER = 24 };
enum { MOST_ARGUMENTS = 256 };

/* Calls and alarms while nothing of a candidate runs: the client is silent, not the program bad. */
static volatile sig_atomic_t idle = 1;
static char reason_path[4096];
static char signal_stack[65536];

static Tensor *tensor_of(const Any *argument) {
    char *pointer = argument->value.pointer;
    return (Tensor *)(argument->type == TENSOR_OBJECT ? pointer + OBJECT_HEADER : pointer);
}

static void *memory_of(const Any *argument) {
    Tensor *tensor = tensor_of(argument);
    return (char *)tensor->data + tensor->byte_offset;
}

static int64_t bytes_of(const Any *argument) {
    Tensor *tensor = tensor_of(argument);
    int64_t size = (tensor->bits * tensor->lanes + 7) / 8;
    for (int i = 0; i < tensor->dimensions; i++) size *= tensor->shape[i];
    return size;
}

static int give(Any *result, int64_t integer) {
    result->type = INTEGER;
    result->unused = 0;
    result->value.integer = integer;
    return 0;
}

static void end_session(int number) {
    char text[4] = {'0' + number / 10, '0' + number % 10, idle ? 'i' : 'b', '\n'};
    int file = open(reason_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file >= 0) {
        ssize_t written = write(file, text, sizeof text);
        (void)written;
        close(file);
    }
    _exit(0);
}

static void set_alarm(double seconds) {
    struct itimerval timer = {{0, 0}, {(time_t)seconds, (seconds - (time_t)seconds) * 1e6}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* guard(path): from now on the session ends tidily, and says why in the file. */
int __tvm_ffi_guard(void *self, const Any *arguments, int32_t count, Any *result) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM, SIGTRAP};
    stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    struct sigaction action = {.sa_handler = end_session, .sa_flags = SA_ONSTACK | SA_NODEFER};
    struct rlimit no_core = {0, 0};
    sigset_t every;
    sigfillset(&every);
    strncpy(reason_path, arguments[0].value.pointer, sizeof reason_path - 1);
    sigaltstack(&stack, NULL);
    setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], &action, NULL)) return give(result, -errno);
    /* Who started the server may have blocked them. */
    return give(result, -pthread_sigmask(SIG_UNBLOCK, &every, NULL));
}

/* watch(seconds, idle): end the session then, unless it is called again. */
int __tvm_ffi_watch(void *self, const Any *arguments, int32_t count, Any *result) {
    idle = arguments[1].value.integer != 0;
    set_alarm(arguments[0].value.number);
    return give(result, 0);
}

/* environment(name, value) */
int __tvm_ffi_environment(void *self, const Any *arguments, int32_t count, Any *result) {
    int failed = setenv(arguments[0].value.pointer, arguments[1].value.pointer, 1);
    return give(result, failed ? -errno : 0);
}

/* read(path, bytes): the beginning of a file, also of those whose length the kernel hides. */
int __tvm_ffi_read(void *self, const Any *arguments, int32_t count, Any *result) {
    char *memory = memory_of(arguments + 1);
    int64_t size = bytes_of(arguments + 1), end = 0;
    int file = open(arguments[0].value.pointer, O_RDONLY);
    if (file < 0) return give(result, -errno);
    while (end < size) {
        ssize_t got = read(file, memory + end, size - end);
        if (got <= 0) break;
        end += got;
    }
    close(file);
    return give(result, end);
}

/* machine(bytes): the architecture as text that ends with 0. */
int __tvm_ffi_machine(void *self, const Any *arguments, int32_t count, Any *result) {
    struct utsname names;
    if (uname(&names)) return give(result, -errno);
    strncpy(memory_of(arguments), names.machine, bytes_of(arguments));
    return give(result, 0);
}

/* hwcap(which): a word of the processor's features, 0 or 1. */
int __tvm_ffi_hwcap(void *self, const Any *arguments, int32_t count, Any *result) {
    return give(result, getauxval(arguments[0].value.integer ? AT_HWCAP2 : AT_HWCAP));
}

/* fill(bytes, pattern, begin, size): the pattern over and over; to the end with a size below 0. */
int __tvm_ffi_fill(void *self, const Any *arguments, int32_t count, Any *result) {
    char *memory = memory_of(arguments), *pattern = memory_of(arguments + 1);
    int64_t begin = arguments[2].value.integer, size = arguments[3].value.integer;
    int64_t end = size < 0 ? bytes_of(arguments) : begin + size, step = bytes_of(arguments + 1);
    for (; begin < end; begin += step)
        memcpy(memory + begin, pattern, end - begin < step ? end - begin : step);
    return give(result, 0);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Copies of a program's weights in one piece of memory: where each begins (-1: no weight), and how
 * far the next copy is. */
typedef struct {
    char *memory;
    const int64_t *begins;
    int64_t step, copies, next;
} Rotation;

static int run_once(Function *function, const Any *arguments, int count, Rotation *rotation) {
    Any own[MOST_ARGUMENTS];
    Tensor tensors[MOST_ARGUMENTS];
    Any ignored = {0};
    for (int i = 0; i < count; i++) {
        tensors[i] = *tensor_of(arguments + i);
        if (rotation->copies && rotation->begins[i] >= 0) {
            int64_t begin = rotation->next * rotation->step + rotation->begins[i];
            tensors[i].data = rotation->memory + begin;
            tensors[i].byte_offset = 0;
        }
        own[i] = (Any){TENSOR, 0, {.pointer = tensors + i}};
    }
    if (rotation->copies) rotation->next = (rotation->next + 1) % rotation->copies;
    return function(NULL, own, count, &ignored);
}

/* address(path): of the function `main` of a library that the session has loaded. Its file goes. */
int __tvm_ffi_address(void *self, const Any *arguments, int32_t count, Any *result) {
    void *library = dlopen(arguments[0].value.pointer, RTLD_NOW | RTLD_NOLOAD);
    unlink(arguments[0].value.pointer);
    void *function = library ? dlsym(library, "__tvm_ffi_main") : NULL;
    if (library) dlclose(library);
    return give(result, function ? (int64_t)(intptr_t)function : -ENOENT);
}

/* time(address, number, repeat, limit_s, idle_s, seconds, memory, begins, step, copies, arguments...)
 *
 * Runs a function once, then `repeat` times `number` runs, of which it writes the seconds of one
 * run. With copies, each run has another one of the weights. The session ends when it all takes
 * longer than the limit, or when nothing comes for `idle_s` after it. */
int __tvm_ffi_time(void *self, const Any *arguments, int32_t count, Any *result) {
    int64_t number = arguments[1].value.integer, repeat = arguments[2].value.integer;
    double *seconds = memory_of(arguments + 5);
    Rotation rotation = {memory_of(arguments + 6), memory_of(arguments + 7),
                         arguments[8].value.integer, arguments[9].value.integer, 0};
    const Any *own = arguments + 10;
    int failed = 0, own_count = count - 10;
    Function *function = (Function *)(intptr_t)arguments[0].value.integer;
    if (own_count > MOST_ARGUMENTS) return give(result, -E2BIG);
    idle = 0;
    set_alarm(arguments[3].value.number);
    failed = run_once(function, own, own_count, &rotation);
    for (int64_t i = 0; i < repeat && !failed; i++) {
        double started = now();
        for (int64_t j = 0; j < number && !failed; j++)
            failed = run_once(function, own, own_count, &rotation);
        seconds[i] = (now() - started) / number;
    }
    idle = 1;
    set_alarm(arguments[4].value.number);
    return failed ? failed : give(result, 0);
}
