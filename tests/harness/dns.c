/* Names are asked of the server at 127.0.0.1:TEST_DNS_PORT, by the resolver of the C library. Preloaded. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <nss.h>
#include <resolv.h>
#include <stdlib.h>

extern int __nss_configure_lookup(const char *database, const char *services);

__attribute__((constructor)) static void begin(void) { __nss_configure_lookup("hosts", "files dns"); }

int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found) {
  static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
  const char *port = getenv("TEST_DNS_PORT");
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
  /* It belongs to this thread. */
  if (port && !res_init()) {
    _res.options |= RES_NORELOAD;
    _res.nscount = 1;
    _res.nsaddr_list[0].sin_family = AF_INET;
    _res.nsaddr_list[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    _res.nsaddr_list[0].sin_port = htons((unsigned short)atoi(port));
  }
  return real(node, service, hints, found);
}
