// Runs the threads of a kernel on the CPU, one threadgroup after another, and says what went wrong in one of them.
//
// A thread runs until it has to wait for others: for its simdgroup of 32, in functions such as `simd_sum`, or for its
// group, at a barrier. Each buffer ends where a page ends, and no page follows that may be touched.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

extern "C" char __start_threadgroup_memory[] __attribute__((weak));
extern "C" char __stop_threadgroup_memory[] __attribute__((weak));

namespace machine {

constexpr unsigned LANES = 32;
constexpr size_t STACK = 64 << 10, GUARD = 1 << 20, MOST_THREADS = 1024;
constexpr int FAULT = 3;               // the exit code after `fail`
constexpr unsigned char UNWRITTEN = 0xFF;  // bytes of NaN in each format

struct uint3 {
    unsigned x, y, z;
    size_t count() const { return size_t(x) * y * z; }
};

struct Position {
    uint3 in_grid, in_group, group, grid, groups, group_size;
    unsigned index, lane, simdgroup;
};

enum Waiting { NOT, FOR_SIMDGROUP, FOR_GROUP, ENDED };

struct Thread {
    ucontext_t context;
    Position at;
    Waiting waiting;
    int line;               // where it waits
    uint64_t exchanges;     // how many it has taken part in
    struct {
        uint64_t number;
        unsigned char bytes[8];
    } given[2];             // a thread is never more than one exchange ahead of another of its simdgroup
};

struct Buffer {
    const char* name;
    size_t item, bytes;     // of an element, of all
    char *pages, *start, *end;
};

inline Thread threads[MOST_THREADS];
inline Thread* current;
inline ucontext_t scheduler;
inline char* stacks;
inline Buffer* buffers;
inline int buffer_count;
inline void (*body)(const Position&, Buffer*);

// Ends the process with a message.
inline void fail(const char* format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (write(2, text, length) < 0) _exit(FAULT + 1);
    _exit(FAULT);
}

inline unsigned lane() { return current->at.lane; }

inline void wait(Waiting what, int line) {
    current->waiting = what;
    current->line = line;
    swapcontext(&current->context, &scheduler);
}
inline void wait_for_group(int line) { wait(FOR_GROUP, line); }
inline void wait_for_simdgroup(int line) { wait(FOR_SIMDGROUP, line); }

// What the threads of a simdgroup gave in one exchange; a thread that has ended gave nothing.
template <typename T>
struct Values {
    Thread* first;
    uint64_t number;
    bool there(unsigned lane) const {
        return first + lane < threads + MOST_THREADS && first[lane].given[number % 2].number == number;
    }
    T of(unsigned lane) const {
        T value;
        if (there(lane)) memcpy(&value, first[lane].given[number % 2].bytes, sizeof value);
        else memset(&value, UNWRITTEN, sizeof value);
        return value;
    }
};

template <typename T>
Values<T> exchange(T own, int line) {
    static_assert(sizeof(T) <= 8, "simd functions take numbers");
    uint64_t number = ++current->exchanges;
    auto& mine = current->given[number % 2];
    mine.number = number;
    memcpy(mine.bytes, &own, sizeof own);
    wait(FOR_SIMDGROUP, line);
    return {current - current->at.lane, number};
}

inline void run_thread() {
    body(current->at, buffers);
    current->waiting = ENDED;
    swapcontext(&current->context, &scheduler);
}

// Lets `count` threads from `first` on go on if all of them wait for `what` in one line, those that have ended aside.
inline bool release(Thread* first, size_t count, Waiting what) {
    Thread* one = nullptr;
    for (Thread* thread = first; thread < first + count; ++thread) {
        if (thread->waiting == ENDED) continue;
        if (thread->waiting != what || (one && thread->line != one->line)) return false;
        one = thread;
    }
    if (!one) return false;
    for (Thread* thread = first; thread < first + count; ++thread)
        if (thread->waiting == what) thread->waiting = NOT;
    return true;
}

inline void fail_of_waiting(size_t count) {
    for (Thread* thread = threads; thread < threads + count; ++thread)
        for (Thread* other = threads; other < thread; ++other) {
            if (thread->waiting == ENDED || other->waiting == ENDED || thread->line == other->line) continue;
            fail("thread %u of a threadgroup waits for the others in line %d, thread %u in line %d: all threads "
                 "of a simdgroup must come to the same simd function, and all of a threadgroup to the same barrier",
                 other->at.index, other->line, thread->at.index, thread->line);
        }
    fail("the threads of a threadgroup wait for one another without end");
}

inline void run_group(size_t count) {
    size_t section = __stop_threadgroup_memory - __start_threadgroup_memory;
    if (section) memset(__start_threadgroup_memory, UNWRITTEN, section);
    for (size_t n = 0; n < count; ++n) {
        Thread& thread = threads[n];
        thread.waiting = NOT;
        thread.exchanges = thread.given[0].number = thread.given[1].number = 0;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = stacks + n * (STACK + GUARD) + GUARD;
        thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, run_thread, 0);
    }
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        bool left = false;
        for (size_t n = 0; n < count; ++n) {
            if (threads[n].waiting == NOT) {
                current = &threads[n];
                swapcontext(&scheduler, &current->context);
            }
            left = left || threads[n].waiting != ENDED;
        }
        for (size_t n = 0; n < count; n += LANES)
            goes_on |= release(threads + n, count - n < LANES ? count - n : LANES, FOR_SIMDGROUP);
        if (!goes_on) goes_on = release(threads, count, FOR_GROUP);
        if (left && !goes_on) fail_of_waiting(count);
    }
}

inline unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }

inline void run_grid(uint3 grid, uint3 size) {
    uint3 groups = {(grid.x + size.x - 1) / size.x, (grid.y + size.y - 1) / size.y, (grid.z + size.z - 1) / size.z};
    for (size_t n = 0; n < groups.count(); ++n) {
        uint3 group = {unsigned(n % groups.x), unsigned(n / groups.x % groups.y), unsigned(n / groups.x / groups.y)};
        uint3 first = {group.x * size.x, group.y * size.y, group.z * size.z};
        uint3 here = {smaller(size.x, grid.x - first.x), smaller(size.y, grid.y - first.y),
                      smaller(size.z, grid.z - first.z)};
        for (unsigned index = 0; index < here.count(); ++index) {
            uint3 in = {index % here.x, index / here.x % here.y, index / here.x / here.y};
            threads[index].at = {{first.x + in.x, first.y + in.y, first.z + in.z}, in, group, grid, groups, here,
                                 index, index % LANES, index / LANES};
        }
        run_group(here.count());
    }
}

inline void report_access(int, siginfo_t* info, void*) {
    char* where = static_cast<char*>(info->si_addr);
    uint3 at = current ? current->at.in_grid : uint3{};
    for (Buffer* one = buffers; one < buffers + buffer_count; ++one) {
        long size = long(one->item), place = (where - one->start) / size - (where < one->start);
        if (where >= one->pages && where < one->end + GUARD)
            fail("thread (%u, %u, %u) of the grid reads or writes element %ld of %s, which has %zu", at.x, at.y, at.z,
                 place, one->name, one->bytes / one->item);
    }
    if (where >= stacks && where < stacks + MOST_THREADS * (STACK + GUARD))
        fail("a thread has no room for its own arrays: %zu KiB are allowed here", STACK >> 10);
    fail("thread (%u, %u, %u) of the grid reads or writes memory that belongs to no array", at.x, at.y, at.z);
}

inline void* pages(size_t bytes) {
    void* found = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) fail("there is no memory for the kernel's arrays");
    return found;
}

inline void open_pages(char* from, size_t bytes) {
    if (bytes && mprotect(from, bytes, PROT_READ | PROT_WRITE)) fail("there is no memory for the kernel's arrays");
}

// Room for a buffer, its end at the end of a page, between two stretches that may not be touched.
inline void make_room(Buffer& buffer) {
    size_t page = sysconf(_SC_PAGESIZE), whole = (buffer.bytes + page - 1) / page * page;
    buffer.pages = static_cast<char*>(pages(GUARD + whole + GUARD));
    buffer.end = buffer.pages + GUARD + whole;
    buffer.start = buffer.end - buffer.bytes;
    open_pages(buffer.end - whole, whole);
    memset(buffer.end - whole, UNWRITTEN, whole);
}

inline void check_front(const Buffer& buffer) {
    size_t page = sysconf(_SC_PAGESIZE), whole = (buffer.bytes + page - 1) / page * page;
    for (char* place = buffer.end - whole; place < buffer.start; ++place)
        if (static_cast<unsigned char>(*place) != UNWRITTEN) fail("the kernel writes in front of %s", buffer.name);
}

inline void take(void* place, size_t bytes) {
    if (bytes && fread(place, 1, bytes, stdin) != bytes) fail("the kernel's arrays did not arrive");
}

// Takes sizes and inputs from the standard input, runs the kernel, and writes the outputs to the standard output.
inline int run(void (*kernel)(const Position&, Buffer*), Buffer* all, int inputs, int outputs) {
    body = kernel, buffers = all, buffer_count = inputs + outputs;
    uint32_t sizes[6];
    take(sizes, sizeof sizes);
    for (int n = 0; n < buffer_count; ++n) {
        uint64_t bytes;
        take(&bytes, sizeof bytes);
        all[n].bytes = bytes;
        make_room(all[n]);
    }
    for (int n = 0; n < buffer_count; ++n) take(all[n].start, all[n].bytes);
    uint3 grid = {sizes[0], sizes[1], sizes[2]}, group = {sizes[3], sizes[4], sizes[5]};
    stacks = static_cast<char*>(pages(MOST_THREADS * (STACK + GUARD)));
    for (size_t n = 0; n < group.count(); ++n) open_pages(stacks + n * (STACK + GUARD) + GUARD, STACK);
    static char handler_stack[64 << 10];
    stack_t other = {};
    other.ss_sp = handler_stack, other.ss_size = sizeof handler_stack;
    sigaltstack(&other, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = report_access;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    run_grid(grid, group);
    for (int n = 0; n < buffer_count; ++n) check_front(all[n]);
    for (int n = inputs; n < buffer_count; ++n) fwrite(all[n].start, 1, all[n].bytes, stdout);
    return fflush(stdout) ? 1 : 0;
}

}  // namespace machine
