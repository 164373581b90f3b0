/* A receiver of quotes of the Taiwan exchanges, plain as its user may have it: a blocking recvfrom and a printed line
 * for each quote. Flags switch its optimisations on. At its end it prints its statistics as a line of JSON.
 *
 *     receiver [-n] [-c CPU] [-r PRIORITY] [-q] [-b BYTES] [-N QUOTES] [-t SECONDS] GROUP PORT INTERFACE
 *
 * -n  non-blocking, in a busy loop           -q  statistics in memory, nothing printed for a quote
 * -c  run on this CPU                        -b  receive buffer
 * -r  SCHED_FIFO with this priority          -N  end after so many quotes; -t after so many seconds
 *
 * Latency: from the match time in a quote to the clock of the application, less the smallest one of the run, because
 * the exchange has another clock. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX (1 << 20)
#define DAY_NS (24LL * 3600 * 1000000000)

static volatile sig_atomic_t stopped;
static int64_t samples[SAMPLES_MAX];
static size_t sample_count;
/* Of format 06 of the TWSE: one sequence. */
static uint32_t first_sequence, last_sequence, in_sequence_count;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static void fail(const char *what) {
    fprintf(stderr, "receiver: cannot %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Number of so many bytes of packed BCD. */
static uint64_t bcd(const uint8_t *at, int bytes) {
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++)
        number = number * 100 + (at[i] >> 4) * 10 + (at[i] & 15);
    return number;
}

static int64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Match time HHMMSS, milliseconds, microseconds, since midnight. */
static int64_t match_ns(const uint8_t *at) {
    int64_t seconds = bcd(at, 1) * 3600 + bcd(at + 1, 1) * 60 + bcd(at + 2, 1);
    return (seconds * 1000000 + (int64_t)bcd(at + 3, 3)) * 1000;
}

static void quote(const uint8_t *telegram, int64_t arrived_ns, int is_quiet) {
    unsigned business = bcd(telegram + 3, 1), format = bcd(telegram + 4, 1);
    uint32_t sequence = bcd(telegram + 6, 4);
    if (business == 1 && format == 6) {
        if (in_sequence_count++ == 0)
            first_sequence = sequence;
        last_sequence = sequence;
    }
    if (format != 6 && format != 17 && format != 23)
        return;
    /* Only differences count: the smallest is subtracted at the end. */
    int64_t latency_ns = arrived_ns % DAY_NS - match_ns(telegram + 16);
    if (sample_count < SAMPLES_MAX)
        samples[sample_count++] = latency_ns;
    if (!is_quiet)
        printf("quote %.6s format %02u sequence %u latency %lld ns\n", telegram + 10, format, sequence,
               (long long)latency_ns);
}

static int ascending(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* Smallest sample that no more than the share 1 - q of all exceed. */
static double quantile_us(double q) {
    if (sample_count == 0)
        return 0;
    size_t at = (size_t)(q * sample_count);
    at = at < sample_count ? at : sample_count - 1;
    return (samples[at] - samples[0]) / 1000.0;
}

int main(int argc, char **argv) {
    int is_spinning = 0, is_quiet = 0, cpu = -1, priority = 0, buffer_bytes = 0, option;
    uint64_t quotes_max = UINT64_MAX, count = 0;
    double seconds = 1e9;
    while ((option = getopt(argc, argv, "nc:r:qb:N:t:")) != -1)
        switch (option) {
        case 'n': is_spinning = 1; break;
        case 'q': is_quiet = 1; break;
        case 'c': cpu = atoi(optarg); break;
        case 'r': priority = atoi(optarg); break;
        case 'b': buffer_bytes = atoi(optarg); break;
        case 'N': quotes_max = strtoull(optarg, NULL, 10); break;
        case 't': seconds = atof(optarg); break;
        default: return 2;
        }
    if (argc - optind != 3) {
        fprintf(stderr, "receiver: give GROUP PORT INTERFACE\n");
        return 2;
    }
    struct sigaction action = { .sa_handler = stop };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* As on a terminal: each line is written at once. */
    setlinebuf(stdout);

    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0)
        fail("open a socket");
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (buffer_bytes > 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) &&
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes))
        fail("set the receive buffer");
    struct ip_mreqn group = { .imr_ifindex = if_nametoindex(argv[optind + 2]) };
    if (!inet_aton(argv[optind], &group.imr_multiaddr) || group.imr_ifindex == 0 ||
        setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group))
        fail("join the group");
    struct timeval patience = { .tv_usec = 100000 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (is_spinning && fcntl(fd, F_SETFL, O_NONBLOCK))
        fail("make the socket non-blocking");
    if (cpu >= 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(cpu, &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus))
            fail("run on that CPU");
    }
    struct sched_param real_time = { .sched_priority = priority };
    if (priority > 0 && sched_setscheduler(0, SCHED_FIFO, &real_time))
        fail("set the priority");
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[optind + 1])),
                               .sin_addr = group.imr_multiaddr };
    if (bind(fd, (struct sockaddr *)&own, sizeof own))
        fail("bind the port");

    int64_t until_ns = now_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
    static uint8_t datagram[65536];
    while (count < quotes_max) {
        /* What has arrived before the end is read. */
        int is_over = stopped || now_ns(CLOCK_MONOTONIC) >= until_ns;
        int flags = is_spinning || is_over ? MSG_DONTWAIT : 0;
        ssize_t length = recvfrom(fd, datagram, sizeof datagram, flags, NULL, NULL);
        if (length < 0 && errno != EAGAIN && errno != EINTR)
            fail("receive");
        if (length < 0 && is_over)
            break;
        if (length < 0)
            continue;
        int64_t arrived_ns = now_ns(CLOCK_REALTIME);
        for (ssize_t at = 0; at + 22 <= length && datagram[at] == 0x1b;) {
            ssize_t telegram_bytes = bcd(datagram + at + 1, 2);
            if (telegram_bytes < 22 || at + telegram_bytes > length)
                break;
            quote(datagram + at, arrived_ns, is_quiet);
            count++;
            at += telegram_bytes;
        }
    }
    qsort(samples, sample_count, sizeof samples[0], ascending);
    size_t fast = 0;
    while (fast < sample_count && samples[fast] - samples[0] <= 1000)
        fast++;
    printf("{\"count\": %llu, \"p50_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, \"within_1us\": %.6f, "
           "\"first\": %u, \"last\": %u, \"in_sequence\": %u}\n",
           (unsigned long long)count, quantile_us(0.5), quantile_us(0.99), quantile_us(0.999),
           sample_count ? (double)fast / sample_count : 0.0, first_sequence, last_sequence, in_sequence_count);
    return 0;
}
