/* Start a program that has nothing to do with this process any more. */
#ifndef HPCSAMPLER_DETACH_H
#define HPCSAMPLER_DETACH_H

/* Run argv[0] (a path) with this environment in a session of its own, with /dev/null as stdin and `output_fd` as
 * stdout and stderr, every other descriptor closed, signals at their defaults, in directory "/".
 * It is no child of this process: no SIGCHLD, no zombie, and the program's own wait() never sees it.
 * 0, or an errno. */
int hps_start_detached(char *const argv[], char *const envp[], int output_fd);

#endif
