/* Clients for the benchmark that read streams: one epoll loop, one request per connection.
 *
 * sse PORT STREAMS MILLI_HZ STREAMS_PER_S WINDOW_S
 *
 * Opens STREAMS streams of MILLI_HZ events in 1000 s each, STREAMS_PER_S of them a second, then:
 *   prints `begin`, a second after the last was opened, and counts events for WINDOW_S
 *   prints `end`, with every stream still open, and waits for a line on stdin, so that whoever
 *   started it can look at the proxy at both moments
 *   prints one line of JSON. Delays are from the time that an event holds (CLOCK_MONOTONIC).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000ULL
#define STAMP 19           /* digits of an event's time */
#define MARK "\"text\":\""
#define CARRY 31           /* bytes that may hold the beginning of a mark and its stamp */
#define BUFFER (1 << 17)
#define EVENTS_MAX 512     /* of one epoll_wait */
#define CALM_NS NS         /* after the last stream was opened, for the connecting to be over */
#define DELAYS 1000000     /* a histogram of microseconds; the last one holds what is longer */

struct stream {
  int fd;
  bool answered;
  uint64_t asked;
  char carry[CARRY];
  size_t carried;
};

struct delays {
  uint32_t count[DELAYS];
  uint64_t total;
};

static int epoll, port;
static struct delays events, firsts;
static long errors, live;
static bool counting;
static char request[2048];
static size_t request_size;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static void note(struct delays *delays, uint64_t ns) {
  uint64_t us = ns / 1000;
  delays->count[us < DELAYS ? us : DELAYS - 1]++;
  delays->total++;
}

static int percentile(const struct delays *delays, double share) {
  uint64_t seen = 0, wanted = (uint64_t)((double)delays->total * share);
  for (int us = 0; us < DELAYS; us++)
    if ((seen += delays->count[us]) > wanted) return us;
  return DELAYS;
}

static void ask(struct stream *s) {
  int on = 1;
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  s->fd = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  s->asked = now();
  if (connect(s->fd, (struct sockaddr *)&a, sizeof a) ||
      send(s->fd, request, request_size, MSG_NOSIGNAL) != (ssize_t)request_size) {
    errors++;
    close(s->fd);
    return;
  }
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
  epoll_ctl(epoll, EPOLL_CTL_ADD, s->fd, &e);
  live++;
}

/* Notes the events in what has come; their beginnings may have come before. */
static void read_stream(struct stream *s) {
  static char buffer[BUFFER];
  memcpy(buffer, s->carry, s->carried);
  ssize_t n = recv(s->fd, buffer + s->carried, BUFFER - CARRY, MSG_DONTWAIT);
  uint64_t t = now();
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) { /* no stream ends before we do */
    errors++;
    live--;
    close(s->fd);
    return;
  }
  if (!s->answered) {
    s->answered = true;
    note(&firsts, t - s->asked);
    if (memcmp(buffer, "HTTP/1.1 200 ", 13)) errors++;
  }
  char *end = buffer + s->carried + n, *rest = buffer, *mark;
  while ((mark = memmem(rest, (size_t)(end - rest), MARK, strlen(MARK)))) {
    if (end - mark < (ssize_t)strlen(MARK) + STAMP) break;
    if (counting) note(&events, t - strtoull(mark + strlen(MARK), NULL, 10));
    rest = mark + strlen(MARK) + STAMP;
  }
  s->carried = end - rest < CARRY ? (size_t)(end - rest) : CARRY;
  memcpy(s->carry, end - s->carried, s->carried);
}

static void wait_for_events(int most_ms) {
  struct epoll_event ready[EVENTS_MAX];
  int n = epoll_wait(epoll, ready, EVENTS_MAX, most_ms);
  for (int i = 0; i < n; i++) read_stream(ready[i].data.ptr);
}

static void wait_until(uint64_t end) {
  for (uint64_t t; (t = now()) < end;) wait_for_events((int)((end - t) / 1000000) + 1);
}

static void prepare_request(long milli_hz) {
  char body[512];
  int size = snprintf(body, sizeof body,
                      "{\"model\":\"m\",\"stream\":true,\"chunks\":1000000000,\"milli_hz\":%ld,"
                      "\"prompt\":\"Tell me a long story about a proxy that forwards events to"
                      " many clients without ever copying a byte too many, and go on and on.\"}",
                      milli_hz);
  request_size = (size_t)snprintf(request, sizeof request,
                                  "POST /v1/completions HTTP/1.1\r\nHost: gateway\r\n"
                                  "User-Agent: sse/1\r\nAccept: text/event-stream\r\n"
                                  "Authorization: Bearer sk-1\r\nContent-Type: application/json\r\n"
                                  "Content-Length: %d\r\n\r\n%s", size, body);
}

int main(int argc, char **argv) {
  if (argc != 6) return fprintf(stderr, "sse PORT STREAMS MILLI_HZ STREAMS_PER_S WINDOW_S\n"), 2;
  port = atoi(argv[1]);
  long wanted = atol(argv[2]);
  uint64_t gap = NS / strtoull(argv[4], NULL, 10);
  uint64_t window = (uint64_t)(atof(argv[5]) * (double)NS);
  prepare_request(atol(argv[3]));
  epoll = epoll_create1(0);
  struct stream *streams = calloc((size_t)wanted, sizeof *streams);
  uint64_t start = now();
  for (long i = 0; i < wanted; i++) {
    ask(&streams[i]);
    wait_for_events(0);
    wait_until(start + (uint64_t)i * gap);
  }
  wait_until(now() + CALM_NS);
  printf("begin\n");
  fflush(stdout);
  counting = true;
  uint64_t begun = now();
  wait_until(begun + window);
  counting = false;
  double seconds = (double)(now() - begun) / (double)NS;
  printf("end\n");
  fflush(stdout);
  char line[16];
  if (!fgets(line, sizeof line, stdin)) return 1;
  printf("{\"seconds\":%.3f,\"events\":%llu,\"live\":%ld,\"errors\":%ld,\"p50_us\":%d,"
         "\"p99_us\":%d,\"first_p50_us\":%d,\"first_p99_us\":%d}\n",
         seconds, (unsigned long long)events.total, live, errors, percentile(&events, .5),
         percentile(&events, .99), percentile(&firsts, .5), percentile(&firsts, .99));
  return 0;
}
