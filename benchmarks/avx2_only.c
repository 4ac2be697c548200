/* Loaded into a process by LD_AUDIT: each library learns that the processor saves no registers wider
   than AVX2's, and takes the code that it would take on a processor without AVX-512.

   Before a library uses AVX-512 or AMX it asks XGETBV whether their registers are saved (Intel's
   manual, volume 1, 15.2). Each such instruction is replaced, in memory and before any of the
   library's code has run (rtld-audit(7), la_objopen), by one that is invalid; the handler of that
   signal gives the answer and goes on behind it. New programs inherit LD_AUDIT.

   ld.so, which loads this, has asked before: libc's own functions (memcpy) stay as they are. */
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

/* The states x87, SSE and AVX. */
#define SAVED 7

static const unsigned char ASKS[3] = {0x0f, 0x01, 0xd0}, INVALID[3] = {0x0f, 0x0b, 0xd0};
/* How far before it CPUID may stand, after which programs ask it. */
#define BEFORE 24

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *saved = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)info;
    if (memcmp((const void *)saved[REG_RIP], INVALID, sizeof INVALID)) {
        signal(number, SIG_DFL);
        return;
    }
    saved[REG_RAX] = SAVED, saved[REG_RDX] = 0;
    saved[REG_RIP] += sizeof INVALID;
}

/* Whether bytes that look like XGETBV are one: ECX, which it reads, has been set to 0 just before, or
   CPUID has been executed. `add eax, edx` looks the same behind some instructions. */
static int is_asked(const unsigned char *begin, const unsigned char *at) {
    static const unsigned char XOR[2] = {0x31, 0xc9}, XOR_TOO[2] = {0x33, 0xc9};
    static const unsigned char MOVE[5] = {0xb9, 0, 0, 0, 0}, CPUID[2] = {0x0f, 0xa2};
    if (at - begin < BEFORE) return 0;
    return !memcmp(at - 2, XOR, 2) || !memcmp(at - 2, XOR_TOO, 2) || !memcmp(at - 5, MOVE, 5) ||
           /* `mov ecx, r8d` to `mov ecx, r15d` */
           (at[-3] == 0x44 && at[-2] == 0x89 && (at[-1] & 0xc7) == 0xc1) ||
           memmem(at - BEFORE, BEFORE, CPUID, sizeof CPUID);
}

static void replace(unsigned char *begin, size_t size, int protection) {
    unsigned char *end = begin + size, *at = begin;
    uintptr_t page = sysconf(_SC_PAGESIZE);
    while ((at = memmem(at, end - at, ASKS, sizeof ASKS))) {
        if (is_asked(begin, at)) {
            unsigned char *first = (unsigned char *)((uintptr_t)at & ~(page - 1));
            size_t length = at + sizeof ASKS - first;
            if (mprotect(first, length, PROT_READ | PROT_WRITE)) perror("mprotect"), exit(1);
            memcpy(at, INVALID, sizeof INVALID);
            mprotect(first, length, protection);
        }
        at += sizeof ASKS;
    }
}

unsigned la_version(unsigned version) {
    struct sigaction ours = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &ours, NULL);
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie) {
    (void)namespace, (void)cookie;
    /* Its program headers follow the file's header, mapped first, except in a program or the vdso. */
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)map->l_addr;
    if (!*map->l_name || !map->l_addr || strstr(map->l_name, "vdso")) return 0;
    const ElfW(Phdr) *parts = (const ElfW(Phdr) *)(map->l_addr + header->e_phoff);
    for (int part = 0; part < header->e_phnum; part++)
        if (parts[part].p_type == PT_LOAD && parts[part].p_flags & PF_X)
            replace((unsigned char *)map->l_addr + parts[part].p_vaddr, parts[part].p_memsz,
                    PROT_READ | PROT_EXEC | (parts[part].p_flags & PF_W ? PROT_WRITE : 0));
    return 0;
}
