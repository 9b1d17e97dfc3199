/* posix_spawn would leave the training script a child that it knows nothing of: os.wait() would return it, SIGCHLD
 * handlers would fire. So the child is cloned without a termination signal (then only waits with __WCLONE see it),
 * and it clones the real program and leaves. Memory is shared until exec, as with vfork: a training process of
 * 100 GB is not copied. */
#include "detach.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK_BYTES = 64 * 1024 };

typedef struct {
    char *const *argv;
    char *const *envp;
    int output_fd;
    char *inner_stack;
    volatile int error;
} program;

static void close_from(int first) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) {
        return;
    }
#endif
    long most = sysconf(_SC_OPEN_MAX);
    for (long fd = first; fd < (most > 0 && most < 65536 ? most : 65536); fd++) {
        close((int)fd);
    }
}

static int run(void *argument) {
    program *p = argument;
    /* Handlers first: with the memory shared, one of the parent's running here would be a disaster. */
    for (int number = 1; number < NSIG; number++) {
        signal(number, SIG_DFL); /* fails for SIGKILL, SIGSTOP and libc's own: they have no handlers */
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(p->output_fd, 1) < 0 || dup2(p->output_fd, 2) < 0 || chdir("/") != 0) {
        p->error = errno;
        _exit(127);
    }
    close_from(3);
    execve(p->argv[0], p->argv, p->envp);
    p->error = errno;
    _exit(127);
}

static int step_aside(void *argument) {
    program *p = argument;
    setsid();
    if (clone(run, p->inner_stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, p) < 0) {
        p->error = errno;
    }
    _exit(0);
}

int hps_start_detached(char *const argv[], char *const envp[], int output_fd) {
    char *stacks = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED) {
        return errno;
    }
    program p = {argv, envp, output_fd, stacks + STACK_BYTES, 0};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t child = clone(step_aside, stacks + STACK_BYTES, CLONE_VM | CLONE_VFORK, &p);
    int error = child < 0 ? errno : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (child > 0) {
        while (waitpid(child, NULL, __WCLONE) < 0 && errno == EINTR) {
        }
        error = p.error;
    }
    munmap(stacks, 2 * STACK_BYTES);
    return error;
}
