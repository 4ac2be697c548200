/* Loaded into a process by LD_PRELOAD: the CPUID instruction says AVX2 and nothing wider there, so
   that every library takes the code that it would take on a processor without AVX-512.

   The kernel makes CPUID fault (arch_prctl(2), ARCH_SET_CPUID: flag cpuid_fault in /proc/cpuinfo).
   The handler executes it, clears the bits and goes on behind it. Threads and forked children
   inherit the setting; a new program has it set again by this constructor. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define FAULTS 0
#define EXECUTES 1

typedef struct { unsigned eax, ebx, ecx, edx; } registers;
typedef int (*sigaction_function)(int, const struct sigaction *, struct sigaction *);
typedef int (*mask_function)(int, const sigset_t *, sigset_t *);

/* What the program itself would have handled. */
static struct sigaction others;

static void clear(unsigned *value, unsigned long long bits) { *value &= ~(unsigned)bits; }
#define BIT(n) (1ull << (n))

/* Intel's manual, volume 2A, CPUID: features of AVX-512, AVX-VNNI, AVX-IFMA, AMX, AVX10. */
static void mask(unsigned leaf, unsigned subleaf, registers *r) {
    if (leaf == 7 && subleaf == 0) {
        clear(&r->ebx, BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        clear(&r->ecx, BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        clear(&r->edx, BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    } else if (leaf == 7 && subleaf == 1) {
        clear(&r->eax, BIT(4) | BIT(5) | BIT(21) | BIT(23));
        clear(&r->edx, BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19));
    } else if (leaf == 0xd && subleaf == 0) {
        /* States that may be saved: AVX-512's three, AMX's two. */
        clear(&r->eax, BIT(5) | BIT(6) | BIT(7) | BIT(17) | BIT(18));
    } else if (leaf == 0x1d || leaf == 0x1e || leaf == 0x24) {
        *r = (registers){0, 0, 0, 0};
    }
}

static void handle(int number, siginfo_t *info, void *context) {
    greg_t *saved = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)saved[REG_RIP];
    /* A fault of the kernel's making, which has no address. */
    if (info->si_code == SI_KERNEL && code[0] == 0x0f && code[1] == 0xa2) {
        unsigned leaf = saved[REG_RAX], subleaf = saved[REG_RCX];
        registers r;
        syscall(SYS_arch_prctl, ARCH_SET_CPUID, EXECUTES);
        __asm__ volatile("cpuid" : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
                         : "a"(leaf), "c"(subleaf));
        syscall(SYS_arch_prctl, ARCH_SET_CPUID, FAULTS);
        mask(leaf, subleaf, &r);
        saved[REG_RAX] = r.eax, saved[REG_RBX] = r.ebx;
        saved[REG_RCX] = r.ecx, saved[REG_RDX] = r.edx;
        saved[REG_RIP] += 2;
    } else if (others.sa_flags & SA_SIGINFO) {
        others.sa_sigaction(number, info, context);
    } else if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN) {
        others.sa_handler(number);
    } else {
        struct sigaction usual = {.sa_handler = SIG_DFL};
        ((sigaction_function)dlsym(RTLD_NEXT, "sigaction"))(number, &usual, NULL);
    }
}

/* The handler stays, whatever else wants the signal, and the signal is never blocked. */
int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    if (number != SIGSEGV)
        return ((sigaction_function)dlsym(RTLD_NEXT, "sigaction"))(number, new, old);
    if (old) *old = others;
    if (new) others = *new;
    return 0;
}

sighandler_t signal(int number, sighandler_t handler) {
    struct sigaction new = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    return sigaction(number, &new, &old) ? SIG_ERR : old.sa_handler;
}

static int without_ours(const char *name, int how, const sigset_t *set, sigset_t *old) {
    sigset_t fewer;
    if (set && how != SIG_UNBLOCK) {
        fewer = *set;
        sigdelset(&fewer, SIGSEGV);
        set = &fewer;
    }
    return ((mask_function)dlsym(RTLD_NEXT, name))(how, set, old);
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old) {
    return without_ours("sigprocmask", how, set, old);
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    return without_ours("pthread_sigmask", how, set, old);
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction ours = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    ((sigaction_function)dlsym(RTLD_NEXT, "sigaction"))(SIGSEGV, &ours, &others);
    if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, FAULTS)) {
        perror("CPUID cannot be made to fault");
        exit(1);
    }
}
