/* A kernel for network cards under QEMU's machine virt, as small as one can be. */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdint.h>

#define FRAME_BYTES 1514

/* kernel.c */

/* Prints to the PL011. In the format: %s text, %u unsigned decimal, %x unsigned hexadecimal, %b byte as two digits. */
void print(const char *format, ...);
/* Waits for whole ticks of 1 ms, rounded up. Returns at once in an interrupt, in which nothing can sleep. */
void udelay(unsigned us);
/* Calls `handler` for interrupt `id` of the controller, by level or edge. One handler is kept. */
void interrupt_on(unsigned id, int is_edge, void (*handler)(void));
/* Value of property `name` of the first node in the device tree whose name begins with `node`, or 0. Its length in bytes
 * goes to `len_bytes`. */
const void *tree_property(const char *node, const char *name, unsigned *len_bytes);
/* A word of the device tree. */
uint32_t big32(const void *word);

/* gic3.c, or gic2.c: the interrupt controller. */

/* Starts it, with one interrupt of the processor's own. */
void controller_start(unsigned private_id);
void controller_enable(unsigned id, int is_edge);
/* Number of the interrupt that has come; 1020 and more for none. */
unsigned controller_take(void);
void controller_end(unsigned id);

static inline uint32_t read32(uintptr_t at) { return *(volatile uint32_t *)at; }
static inline void write32(uintptr_t at, uint32_t value) { *(volatile uint32_t *)at = value; }
static inline void barrier(void) { __asm__ volatile("dmb sy" ::: "memory"); }

void *memcpy(void *to, const void *from, __SIZE_TYPE__ bytes);
void *memset(void *to, int value, __SIZE_TYPE__ bytes);
int memcmp(const void *a, const void *b, __SIZE_TYPE__ bytes);
__SIZE_TYPE__ strlen(const char *text);

/* The card: virtio_net.c, or library_net.c. */

extern uint8_t card_mac[6];
/* Finds and starts the card. Returns 0 after an error, which it has printed. */
int card_start(void);
/* Sends a frame, from its Ethernet header on. Returns 0 if it was refused or is not yet sent. */
int card_send(const uint8_t *frame, unsigned len_bytes);

/* answers.c */

/* Handles a received frame, from its Ethernet header on. */
void frame_received(const uint8_t *frame, unsigned len_bytes);
/* Takes the address from word ip=A.B.C.D of the command line, 192.168.1.2 without one. */
void address_from(const char *command_line, unsigned len_bytes);

#endif
