/* Runs a program and watches, or spoils, what it asks the kernel to do with files below a folder.
 *
 *     syscalls --under FOLDER [--log FILE] [--reads] [--at N --do kill|eio|enospc|short] -- PROGRAM ARGUMENT...
 *
 * Every call that opens, writes, syncs, names, links, makes or deletes something below FOLDER is counted, over all threads.
 * Call N can be made to fail, to write half of its bytes, or to be the last thing that the program did not come to do. With
 * --log a line of JSON is written per call that was made, and what was written goes to FILE.data, so that the calls can be
 * played again. Ends as the program does: its exit code, or 128 and the signal.
 *
 * Works on x86-64 Linux: a seccomp filter stops only the calls that are looked at, ptrace does the rest.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __x86_64__
#error "only x86-64 is known here"
#endif

enum kind { OPEN, WRITE, PWRITE, WRITEV, SYNC, RENAME, LINK, UNLINK, MAKE, TRUNCATE, ALLOCATE, COPY, READ };

static const struct call {
    long number;
    const char *name;
    enum kind kind;
    int first; /* argument of the first path or descriptor */
} CALLS[] = {
    {SYS_open, "open", OPEN, 0},           {SYS_creat, "creat", OPEN, 0},
    {SYS_openat, "openat", OPEN, 1},       {SYS_openat2, "openat2", OPEN, 1},
    {SYS_write, "write", WRITE, 0},        {SYS_pwrite64, "pwrite64", PWRITE, 0},
    {SYS_writev, "writev", WRITEV, 0},     {SYS_fsync, "fsync", SYNC, 0},
    {SYS_fdatasync, "fdatasync", SYNC, 0}, {SYS_rename, "rename", RENAME, 0},
    {SYS_renameat, "renameat", RENAME, 1}, {SYS_renameat2, "renameat2", RENAME, 1},
    {SYS_link, "link", LINK, 0},           {SYS_linkat, "linkat", LINK, 1},
    {SYS_unlink, "unlink", UNLINK, 0},     {SYS_unlinkat, "unlinkat", UNLINK, 1},
    {SYS_rmdir, "rmdir", UNLINK, 0},       {SYS_mkdir, "mkdir", MAKE, 0},
    {SYS_mkdirat, "mkdirat", MAKE, 1},     {SYS_ftruncate, "ftruncate", TRUNCATE, 0},
    {SYS_fallocate, "fallocate", ALLOCATE, 0}, {SYS_copy_file_range, "copy_file_range", COPY, 2},
    {SYS_read, "read", READ, 0},           {SYS_pread64, "pread64", READ, 0},
};
#define KNOWN (sizeof CALLS / sizeof CALLS[0])
#define MOST 4096

static const char *under;
static size_t under_length;
static int with_reads;
static long at, count;
static const char *action = "";
static FILE *journal, *data;
static long data_bytes;

/* What a thread is in the middle of. */
static struct task {
    pid_t pid;
    int seen;    /* stopped at its first stop */
    const struct call *call;
    long error;  /* to be returned instead of making the call */
    long number;
    long long offset, length, flags;
    unsigned long long inode;
    char path[MOST], other[MOST];
    unsigned long buffer;
} tasks[MOST];

static struct task *task_of(pid_t pid) {
    for (int i = 0; i < MOST; i++)
        if (tasks[i].pid == pid) return &tasks[i];
    for (int i = 0; i < MOST; i++)
        if (!tasks[i].pid) {
            memset(&tasks[i], 0, sizeof tasks[i]);
            tasks[i].pid = pid;
            return &tasks[i];
        }
    fprintf(stderr, "syscalls: too many threads\n");
    exit(125);
}

static unsigned long argument(const struct user_regs_struct *regs, int n) {
    switch (n) {
    case 0: return regs->rdi;
    case 1: return regs->rsi;
    case 2: return regs->rdx;
    case 3: return regs->r10;
    case 4: return regs->r8;
    default: return regs->r9;
    }
}

static ssize_t peek(pid_t pid, unsigned long from, void *into, size_t bytes) {
    struct iovec here = {into, bytes}, there = {(void *)from, bytes};
    return process_vm_readv(pid, &here, 1, &there, 1, 0);
}

static void text_at(pid_t pid, unsigned long from, char *into) {
    size_t got = 0;
    into[0] = 0;
    while (got < MOST - 1) {
        size_t piece = 256 - (from + got) % 256;
        if (piece > MOST - 1 - got) piece = MOST - 1 - got;
        ssize_t n = peek(pid, from + got, into + got, piece);
        if (n <= 0) break;
        for (ssize_t i = 0; i < n; i++)
            if (!into[got + i]) return;
        got += n;
    }
    into[got] = 0;
}

static void link_of(pid_t pid, long fd, char *into) {
    char name[64];
    if ((int)fd == AT_FDCWD) snprintf(name, sizeof name, "/proc/%d/cwd", pid);
    else snprintf(name, sizeof name, "/proc/%d/fd/%ld", pid, fd);
    ssize_t n = readlink(name, into, MOST - 1);
    into[n > 0 ? n : 0] = 0;
}

/* A path argument, with the folder it is relative to. `/proc/self/fd/N` is what it stands for. */
static void path_of(pid_t pid, long folder, unsigned long from, char *into) {
    char text[MOST];
    text_at(pid, from, text);
    int fd;
    if (sscanf(text, "/proc/self/fd/%d", &fd) == 1) {
        link_of(pid, fd, into);
    } else if (text[0] == '/') {
        strcpy(into, text);
    } else {
        link_of(pid, folder, into);
        if (text[0] && strlen(into) + strlen(text) + 2 < MOST) {
            strcat(into, "/");
            strcat(into, text);
        }
    }
}

static int is_under(const char *path) {
    return strncmp(path, under, under_length) == 0 && (path[under_length] == '/' || path[under_length] == 0);
}

static unsigned long long inode_of(pid_t pid, long fd) {
    char name[64];
    struct stat facts;
    snprintf(name, sizeof name, "/proc/%d/fd/%ld", pid, fd);
    return stat(name, &facts) == 0 ? facts.st_ino : 0;
}

static long long position_of(pid_t pid, long fd, long long *flags) {
    char name[64], line[128];
    long long position = -1;
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%ld", pid, fd);
    FILE *file = fopen(name, "r");
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "pos: %lld", &position);
        sscanf(line, "flags: %llo", flags);
    }
    fclose(file);
    return position;
}

static void quoted(const char *text) {
    fputc('"', journal);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') fprintf(journal, "\\%c", *c);
        else if (*c < 32 || *c > 126) fprintf(journal, "\\udc%02x", *c);
        else fputc(*c, journal);
    }
    fputc('"', journal);
}

/* Fills in what a call is about; false if it is nothing that lies below the folder. */
static int look(struct task *task, const struct user_regs_struct *regs) {
    const struct call *call = task->call;
    pid_t pid = task->pid;
    unsigned long first = argument(regs, call->first);
    task->other[0] = 0;
    task->inode = 0;
    task->flags = 0;
    task->offset = task->length = -1;
    switch (call->kind) {
    case OPEN:
        path_of(pid, call->first ? (int)argument(regs, 0) : AT_FDCWD, first, task->path);
        if (call->number == SYS_openat2) peek(pid, argument(regs, 2), &task->flags, 8);
        else task->flags = call->number == SYS_creat ? O_CREAT | O_WRONLY | O_TRUNC : (long)argument(regs, call->first + 1);
        break;
    case RENAME:
    case LINK: {
        int step = call->first ? 2 : 1;
        path_of(pid, call->first ? (int)argument(regs, 0) : AT_FDCWD, first, task->path);
        path_of(pid, call->first ? (int)argument(regs, 2) : AT_FDCWD, argument(regs, call->first + step), task->other);
        if (call->number == SYS_linkat && argument(regs, 4) & AT_EMPTY_PATH) link_of(pid, (int)argument(regs, 0), task->path);
        break;
    }
    case UNLINK:
    case MAKE:
        path_of(pid, call->first ? (int)argument(regs, 0) : AT_FDCWD, first, task->path);
        if (call->number == SYS_unlinkat) task->flags = (long)argument(regs, 2);
        break;
    case READ:
        if (!with_reads) return 0;
        /* fall through */
    default:
        link_of(pid, (int)first, task->path);
        task->inode = inode_of(pid, (int)first);
        task->buffer = argument(regs, 1);
        task->length = (long long)argument(regs, call->kind == COPY ? 4 : 2);
        if (call->kind == WRITE || call->kind == WRITEV || call->kind == COPY)
            task->offset = position_of(pid, (int)first, &task->flags);
        if (call->kind == PWRITE) task->offset = (long long)argument(regs, 3);
        if (call->kind == TRUNCATE) task->length = (long long)argument(regs, 1);
    }
    return is_under(task->path) || (task->other[0] && is_under(task->other));
}

static void copy_data(struct task *task, unsigned long from, long long bytes) {
    char piece[65536];
    while (bytes > 0) {
        ssize_t n = peek(task->pid, from, piece, bytes < (long long)sizeof piece ? bytes : (long long)sizeof piece);
        if (n <= 0) {
            fprintf(stderr, "syscalls: what was written cannot be read\n");
            exit(125);
        }
        fwrite(piece, 1, n, data);
        from += n;
        bytes -= n;
        data_bytes += n;
    }
}

static void note(struct task *task, long long result) {
    if (!journal) return;
    enum kind kind = task->call->kind;
    long from = data_bytes;
    if (result > 0 && (kind == WRITE || kind == PWRITE)) copy_data(task, task->buffer, result);
    if (result > 0 && kind == WRITEV) {
        struct iovec parts[1024];
        long long left = result;
        long many = task->length < 1024 ? task->length : 1024;
        peek(task->pid, task->buffer, parts, many * sizeof parts[0]);
        for (long i = 0; i < many && left > 0; i++) {
            long long bytes = (long long)parts[i].iov_len < left ? (long long)parts[i].iov_len : left;
            copy_data(task, (unsigned long)parts[i].iov_base, bytes);
            left -= bytes;
        }
    }
    if (kind == OPEN && result >= 0) task->inode = inode_of(task->pid, result);
    fprintf(journal, "{\"n\":%ld,\"call\":\"%s\",\"path\":", task->number, task->call->name);
    quoted(task->path);
    if (task->other[0]) {
        fprintf(journal, ",\"to\":");
        quoted(task->other);
    }
    fprintf(journal, ",\"inode\":%llu,\"offset\":%lld,\"length\":%lld,\"flags\":%lld,\"result\":%lld,\"data\":%ld}\n",
            task->inode, task->offset, task->length, task->flags, result, from);
}

/* A call is about to be made. */
static void enter(struct task *task) {
    struct user_regs_struct regs;
    ptrace(PTRACE_GETREGS, task->pid, 0, &regs);
    task->call = NULL;
    for (size_t i = 0; i < KNOWN; i++)
        if (CALLS[i].number == (long)regs.orig_rax) task->call = &CALLS[i];
    if (!task->call || !look(task, &regs)) {
        task->call = NULL;
        ptrace(PTRACE_CONT, task->pid, 0, 0);
        return;
    }
    task->number = ++count;
    task->error = 0;
    if (count == at) {
        if (!strcmp(action, "kill")) {
            note(task, -999);
            if (journal) fflush(journal);
            kill(task->pid, SIGKILL);
            return;
        }
        if (!strcmp(action, "eio")) task->error = EIO;
        if (!strcmp(action, "enospc")) task->error = ENOSPC;
        if (!strcmp(action, "short") && (task->call->kind == WRITE || task->call->kind == PWRITE) && task->length > 1) {
            regs.rdx = task->length / 2;
            ptrace(PTRACE_SETREGS, task->pid, 0, &regs);
        }
        if (task->error) {
            regs.orig_rax = (unsigned long)-1;
            ptrace(PTRACE_SETREGS, task->pid, 0, &regs);
        }
    }
    ptrace(PTRACE_SYSCALL, task->pid, 0, 0);
}

/* A call was made. */
static void leave(struct task *task) {
    struct user_regs_struct regs;
    ptrace(PTRACE_GETREGS, task->pid, 0, &regs);
    if (task->error) {
        regs.rax = (unsigned long)-task->error;
        ptrace(PTRACE_SETREGS, task->pid, 0, &regs);
    }
    note(task, (long long)regs.rax);
    task->call = NULL;
    ptrace(PTRACE_CONT, task->pid, 0, 0);
}

static void filter(void) {
    struct sock_filter code[KNOWN + 4];
    size_t n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < KNOWN; i++) {
        if (CALLS[i].kind == READ && !with_reads) continue;
        code[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[i].number, 0, 0);
        n++;
    }
    size_t jumps = n - 1;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    for (size_t i = 1; i <= jumps; i++) code[i].jt = jumps - i + 1;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog program = {n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("syscalls: seccomp");
        _exit(125);
    }
}

int main(int argc, char **argv) {
    int i = 1;
    const char *log_path = NULL;
    for (; i < argc && strcmp(argv[i], "--"); i++) {
        if (!strcmp(argv[i], "--under")) under = argv[++i];
        else if (!strcmp(argv[i], "--log")) log_path = argv[++i];
        else if (!strcmp(argv[i], "--reads")) with_reads = 1;
        else if (!strcmp(argv[i], "--at")) at = atol(argv[++i]);
        else if (!strcmp(argv[i], "--do")) action = argv[++i];
        else return 125;
    }
    if (!under || i + 1 >= argc) {
        fprintf(stderr, "usage: syscalls --under FOLDER [--log FILE] [--reads] [--at N --do ACTION] -- PROGRAM ...\n");
        return 125;
    }
    under_length = strlen(under);
    if (log_path) {
        char name[MOST];
        snprintf(name, sizeof name, "%s.data", log_path);
        journal = fopen(log_path, "w");
        data = fopen(name, "w");
        if (!journal || !data) return perror("syscalls: log"), 125;
    }
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        filter();
        execvp(argv[i + 1], argv + i + 1);
        perror("syscalls: exec");
        _exit(125);
    }
    int status, code = 125;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, 0,
           PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACESYSGOOD |
               PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC);
    task_of(child)->seen = 1;
    ptrace(PTRACE_CONT, child, 0, 0);
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0) break;
        struct task *task = task_of(pid);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (pid == child) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            task->pid = 0;
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (signal == (SIGTRAP | 0x80)) {
            if (task->call) leave(task);
            else ptrace(PTRACE_CONT, pid, 0, 0);
        } else if (event == PTRACE_EVENT_SECCOMP) {
            enter(task);
        } else if (event || (signal == SIGSTOP && !task->seen)) {
            task->seen = 1;
            ptrace(PTRACE_CONT, pid, 0, 0);
        } else {
            ptrace(PTRACE_CONT, pid, 0, signal == SIGTRAP ? 0 : signal);
        }
    }
    if (journal) fclose(journal), fclose(data);
    return code;
}
