/* Instances for the benchmark: HTTP/1.1 on several ports of 127.0.0.1, one epoll loop.
 *
 * stub PORTS        prints the ports it has been given, one line; runs until it is killed
 *
 * The beginning of a request's JSON body says what comes back:
 *   "stream":true,"chunks":N,"milli_hz":R   N events, R in 1000 s, each with the CLOCK_MONOTONIC
 *                                           time of its sending, so that readers see delays
 *   "answer_bytes":N                        N bytes of JSON-like text
 *   "unread":true                           nothing: the rest of the request is never read
 *   none of these                           JSON of 800 bytes
 * A GET is answered with what routers ask of an instance before they take it: its health, its models.
 * Requests are framed by Content-Length, and a connection carries one at a time: what a proxy
 * sends. Anything else closes the connection, which the load generators count.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define KEPT 4096        /* of a request: its head and the beginning of its body */
#define BLOCK (1 << 16)  /* big answers are this block, again and again */
#define ANSWER 800       /* bytes of JSON */
#define EVENTS_MAX 512   /* of one epoll_wait */
#define BACKLOG 8192     /* thousands of streams are opened at once */
#define NS 1000000000ULL

enum stage { LISTENING, READING_HEAD, READING_BODY, ANSWERING, STALLED };

struct conn {
  int fd;
  enum stage stage;
  char kept[KEPT + 1];
  size_t filled;
  uint64_t body_left;       /* still to be read */
  const char *out;          /* still to be written of what is begun */
  size_t out_left;
  uint64_t blocks_left;     /* bytes of a big answer behind `out` */
  uint64_t chunks_left;     /* events of a stream behind `out` */
  uint64_t interval, due;   /* of a stream, ns */
  int place;                /* in the heap; -1: not in it */
  bool wants_room;          /* EPOLLOUT is on */
  char event[KEPT / 8];
};

static int epoll;
static char answer[ANSWER + 256], block[BLOCK], about[1024];
static size_t answer_size, about_size;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

/* --- streams by the time of their next event: a binary heap --------------------------------- */

static struct conn **heap;
static int heap_size, heap_room;

static void put(int place, struct conn *c) {
  heap[place] = c;
  c->place = place;
}

static void settle(int place, struct conn *c) {
  for (; place > 0 && heap[(place - 1) / 2]->due > c->due; place = (place - 1) / 2)
    put(place, heap[(place - 1) / 2]);
  for (;;) {
    int child = 2 * place + 1;
    if (child + 1 < heap_size && heap[child + 1]->due < heap[child]->due) child++;
    if (child >= heap_size || heap[child]->due >= c->due) break;
    put(place, heap[child]);
    place = child;
  }
  put(place, c);
}

static void schedule(struct conn *c) {
  if (c->place < 0) {
    if (heap_size == heap_room) {
      heap_room = heap_room ? 2 * heap_room : 1024;
      heap = realloc(heap, (size_t)heap_room * sizeof *heap);
    }
    c->place = heap_size++;
  }
  settle(c->place, c);
}

static void unschedule(struct conn *c) {
  if (c->place < 0) return;
  struct conn *last = heap[--heap_size];
  if (last != c) settle(c->place, last);
  c->place = -1;
}

/* --- connections ---------------------------------------------------------------------------- */

static void watch(struct conn *c, bool wants_room) {
  if (c->wants_room == wants_room) return;
  c->wants_room = wants_room;
  struct epoll_event e = {.events = EPOLLIN | (wants_room ? EPOLLOUT : 0), .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
}

static void drop(struct conn *c) {
  unschedule(c);
  close(c->fd);
  free(c);
}

/* False when the connection is gone. `out_left` is 0 afterwards, or there will be an EPOLLOUT. */
static bool write_out(struct conn *c) {
  for (;;) {
    while (c->out_left) {
      ssize_t n = send(c->fd, c->out, c->out_left, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) return false;
      if (n < 0) {
        watch(c, true);
        return true;
      }
      c->out += n;
      c->out_left -= (size_t)n;
    }
    if (!c->blocks_left) break;
    c->out = block;
    c->out_left = c->blocks_left < BLOCK ? c->blocks_left : BLOCK;
    c->blocks_left -= c->out_left;
  }
  watch(c, false);
  if (!c->chunks_left) {
    unschedule(c);
    c->stage = READING_HEAD;
  }
  return true;
}

static bool write_text(struct conn *c, const char *text, size_t size) {
  c->out = text;
  c->out_left = size;
  return write_out(c);
}

/* The next event of a stream; one that comes due while the last is still unwritten is left out. */
static bool write_event(struct conn *c) {
  c->due += c->interval;
  settle(c->place, c);
  if (c->out_left) return true;
  char text[KEPT / 16];
  int size = snprintf(text, sizeof text,
                      "data: {\"id\":\"cmpl-01\",\"object\":\"text_completion\",\"created\":1,"
                      "\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"%019llu\"}]}\n\n",
                      (unsigned long long)now());
  const char *end = --c->chunks_left ? "" : "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
  int all = snprintf(c->event, sizeof c->event, "%x\r\n%s\r\n%s", size, text, end);
  return write_text(c, c->event, (size_t)all);
}

/* --- requests ------------------------------------------------------------------------------- */

static uint64_t number(const char *text, const char *key) {
  const char *found = strstr(text, key);
  return found ? strtoull(found + strlen(key), NULL, 10) : 0;
}

static bool respond(struct conn *c, const char *body) {
  uint64_t bytes = number(body, "\"answer_bytes\":");
  c->stage = ANSWERING;
  c->filled = 0;
  if (strstr(body, "\"stream\":true")) {
    uint64_t milli_hz = number(body, "\"milli_hz\":");
    c->chunks_left = number(body, "\"chunks\":");
    if (!milli_hz || !c->chunks_left) return false;
    c->interval = 1000 * NS / milli_hz;
    c->due = now() + (uint64_t)rand() % c->interval; /* spread: tokens do not come in step */
    schedule(c);
    int size = snprintf(c->event, sizeof c->event,
                        "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\n"
                        "server: uvicorn\r\ncache-control: no-cache\r\n"
                        "content-type: text/event-stream; charset=utf-8\r\n"
                        "transfer-encoding: chunked\r\n\r\n");
    return write_text(c, c->event, (size_t)size);
  }
  if (!bytes) return write_text(c, answer, answer_size);
  c->blocks_left = bytes;
  int size = snprintf(c->event, sizeof c->event,
                      "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\n"
                      "server: uvicorn\r\ncontent-length: %llu\r\n"
                      "content-type: application/json\r\n\r\n",
                      (unsigned long long)bytes);
  return write_text(c, c->event, (size_t)size);
}

/* Unread from here on, until the peer hangs up. */
static bool stall(struct conn *c) {
  c->stage = STALLED;
  struct epoll_event e = {.events = 0, .data.ptr = c}; /* a hang-up is always told */
  epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
  return true;
}

static bool read_head(struct conn *c) {
  ssize_t n = recv(c->fd, c->kept + c->filled, KEPT - c->filled, 0);
  if (n <= 0) return n < 0 && errno == EAGAIN;
  c->filled += (size_t)n;
  c->kept[c->filled] = 0;
  char *end = strstr(c->kept, "\r\n\r\n");
  if (!end) return c->filled < KEPT;
  if (!strncmp(c->kept, "GET ", 4)) {
    c->stage = ANSWERING;
    c->filled = 0;
    return write_text(c, about, about_size);
  }
  char *length = strcasestr(c->kept, "\r\ncontent-length:");
  if (!length || length > end) return false;
  uint64_t body = strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
  uint64_t here = c->filled - (size_t)(end + 4 - c->kept);
  if (here > body) return false;
  c->body_left = body - here;
  if (strstr(end, "\"unread\":true")) return stall(c);
  if (!c->body_left) return respond(c, end + 4);
  if (c->filled == KEPT) c->stage = READING_BODY; /* the rest is only counted */
  return true;
}

static bool read_body(struct conn *c) {
  static char dropped[BLOCK];
  while (c->body_left) {
    ssize_t n = recv(c->fd, dropped, c->body_left < BLOCK ? c->body_left : BLOCK, 0);
    if (n <= 0) return n < 0 && errno == EAGAIN;
    c->body_left -= (uint64_t)n;
  }
  return respond(c, strstr(c->kept, "\r\n\r\n") + 4);
}

static bool readable(struct conn *c) {
  char surplus;
  switch (c->stage) {
    case READING_HEAD: return read_head(c);
    case READING_BODY: return read_body(c);
    case STALLED: return false; /* it has hung up */
    default: return recv(c->fd, &surplus, 1, 0) < 0 && errno == EAGAIN;
  }
}

/* --- the loop ------------------------------------------------------------------------------- */

static void add(int fd, enum stage stage) {
  struct conn *c = calloc(1, sizeof *c);
  c->fd = fd;
  c->stage = stage;
  c->place = -1;
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

static void accept_all(int listener) {
  int fd, on = 1;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    add(fd, READING_HEAD);
  }
}

static int listen_on_any_port(void) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  if (bind(fd, (struct sockaddr *)&a, size) || listen(fd, BACKLOG)) {
    perror("stub");
    exit(1);
  }
  getsockname(fd, (struct sockaddr *)&a, &size);
  add(fd, LISTENING);
  return ntohs(a.sin_port);
}

static void prepare_answers(void) {
  static const char begin[] = "{\"id\":\"cmpl-1\",\"object\":\"text_completion\","
                              "\"created\":1700000000,\"model\":\"m\","
                              "\"choices\":[{\"index\":0,\"text\":\"";
  static const char end[] = "\",\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                            "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":9}}";
  char body[ANSWER + 1];
  memset(body, 'a', ANSWER);
  memcpy(body, begin, sizeof begin - 1);
  memcpy(body + ANSWER - (sizeof end - 1), end, sizeof end);
  answer_size = (size_t)snprintf(answer, sizeof answer,
                                 "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\n"
                                 "server: uvicorn\r\ncontent-length: %d\r\n"
                                 "content-type: application/json\r\n\r\n%s", ANSWER, body);
  memset(block, 'a', sizeof block);
  static const char said[] = "{\"status\":\"ok\",\"model_path\":\"m\",\"served_model_name\":\"m\","
                             "\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\","
                             "\"created\":1,\"owned_by\":\"stub\"}]}";
  about_size = (size_t)snprintf(about, sizeof about,
                                "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %zu\r\n"
                                "content-type: application/json\r\n\r\n%s", sizeof said - 1, said);
}

static void send_due_events(void) {
  uint64_t t = now();
  while (heap_size && heap[0]->due <= t) {
    struct conn *c = heap[0];
    if (!write_event(c)) drop(c);
  }
}

int main(int argc, char **argv) {
  int ports = argc == 2 ? atoi(argv[1]) : 0;
  if (ports < 1) return fprintf(stderr, "stub PORTS\n"), 2;
  epoll = epoll_create1(0);
  prepare_answers();
  for (int i = 0; i < ports; i++) printf("%d ", listen_on_any_port());
  printf("\n");
  fflush(stdout);
  for (;;) {
    uint64_t t = now();
    uint64_t wait = heap_size && heap[0]->due > t ? heap[0]->due - t : 0;
    struct timespec until = {.tv_sec = (time_t)(wait / NS), .tv_nsec = (long)(wait % NS)};
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_pwait2(epoll, events, EVENTS_MAX, heap_size ? &until : NULL, NULL);
    for (int i = 0; i < n; i++) {
      struct conn *c = events[i].data.ptr;
      if (c->stage == LISTENING) accept_all(c->fd);
      else if ((events[i].events & ~EPOLLOUT) && !readable(c)) drop(c);
      else if ((events[i].events & EPOLLOUT) && c->wants_room && !write_out(c)) drop(c);
    }
    send_due_events();
  }
}
