/* The plainest recorder there is, to compare with: recvfrom, then write, one file per port.
 *
 *     recvwrite FIRST-PORT PORTS DIRECTORY
 *
 * Says `ready` when it listens; SIGINT ends it once its sockets are empty. It has what a careful
 * writer of such a program would give it, a large socket buffer, and nothing else. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_PORTS = 64, LONGEST = 65536, BUFFER_BYTES = 64 << 20 };

static volatile sig_atomic_t stopped;

static void stop(int signal) { (void)signal; stopped = 1; }

static void die(const char *what) { perror(what); exit(2); }

static int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), bytes = BUFFER_BYTES;
    if (fd < 0) die("socket");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
    if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0) die("bind");
    return fd;
}

static int open_file(const char *directory, int port)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d.raw", directory, port);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) die(path);
    return fd;
}

/* Moves what waits in a socket to its file. */
static void drain(int from, int to)
{
    static char packet[LONGEST];
    for (;;) {
        ssize_t length = recvfrom(from, packet, sizeof packet, 0, NULL, NULL);
        if (length < 0) {
            if (errno == EAGAIN || errno == EINTR) return;
            die("recvfrom");
        }
        if (write(to, packet, length) != length) die("write");
    }
}

int main(int count, char **words)
{
    int ports = count == 4 ? atoi(words[2]) : 0, sockets[MOST_PORTS], files[MOST_PORTS];
    if (ports < 1 || ports > MOST_PORTS) {
        fprintf(stderr, "usage: recvwrite FIRST-PORT PORTS(1-%d) DIRECTORY\n", MOST_PORTS);
        return 2;
    }
    struct sigaction action = { .sa_handler = stop };
    sigaction(SIGINT, &action, NULL);
    int ready = epoll_create1(0);
    for (int n = 0; n < ports; n++) {
        int port = atoi(words[1]) + n;
        sockets[n] = listen_on(port);
        files[n] = open_file(words[3], port);
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = n };
        if (epoll_ctl(ready, EPOLL_CTL_ADD, sockets[n], &event) < 0) die("epoll_ctl");
    }
    puts("ready");
    fflush(stdout);
    while (!stopped) {
        struct epoll_event events[MOST_PORTS];
        int some = epoll_wait(ready, events, MOST_PORTS, -1);
        for (int n = 0; n < some; n++) drain(sockets[events[n].data.u32], files[events[n].data.u32]);
    }
    for (int n = 0; n < ports; n++) drain(sockets[n], files[n]);
    return 0;
}
