/* A plain driver of a virtio network card over registers in memory, as small systems have them.
 *
 * POLL: a send waits for its completion; else completions are reaped at the next send and in the interrupt.
 * RACE: the planted mistake, see card_start. */
#include "kernel.h"

#define SLOTS 0x0a000000UL
#define SLOT_BYTES 0x200UL
#define SLOT_COUNT 32
#define SLOT_INTERRUPT 48
#define QUEUE_FRAMES 64
#define BUFFER_BYTES 2048
#define POLLS_MAX 1000
#define LINK_US 20000
#define RX 0
#define TX 1

enum {
    VERSION = 0x04, DEVICE_ID = 0x08, DEVICE_FEATURES = 0x10, DEVICE_FEATURES_SEL = 0x14, DRIVER_FEATURES = 0x20,
    DRIVER_FEATURES_SEL = 0x24, GUEST_PAGE_SIZE = 0x28, QUEUE_SEL = 0x30, QUEUE_NUM_MAX = 0x34, QUEUE_NUM = 0x38,
    QUEUE_ALIGN = 0x3c, QUEUE_PFN = 0x40, QUEUE_READY = 0x44, QUEUE_NOTIFY = 0x50, INTERRUPT_STATUS = 0x60,
    INTERRUPT_ACK = 0x64, STATUS = 0x70, QUEUE_DESC = 0x80, QUEUE_DRIVER = 0x90, QUEUE_DEVICE = 0xa0, CONFIG = 0x100,
};
enum { ACKNOWLEDGE = 1, DRIVER = 2, DRIVER_OK = 4, FEATURES_OK = 8 };

struct descriptor { uint64_t address; uint32_t len_bytes; uint16_t flags, next; };
struct available { uint16_t flags, index, ring[QUEUE_FRAMES], event; };
struct used { uint16_t flags, index; struct { uint32_t id, len_bytes; } ring[QUEUE_FRAMES]; uint16_t event; };

/* The parts are where a card of the old interface (version 1) looks for them, too. */
struct queue {
    struct descriptor descriptors[QUEUE_FRAMES];
    volatile struct available available;
    volatile struct used used __attribute__((aligned(4096)));
    uint8_t buffers[QUEUE_FRAMES][BUFFER_BYTES];
    uint16_t seen;
} __attribute__((aligned(4096)));

uint8_t card_mac[6];
static struct queue queues[2];
static uintptr_t card;
static unsigned header_bytes;

static void queue_start(unsigned number, uint32_t version)
{
    struct queue *queue = &queues[number];
    write32(card + QUEUE_SEL, number);
    write32(card + QUEUE_NUM, QUEUE_FRAMES);
    if (version == 1) {
        write32(card + QUEUE_ALIGN, 4096);
        write32(card + QUEUE_PFN, (uint32_t)((uintptr_t)queue / 4096));
        return;
    }
    uintptr_t parts[] = {(uintptr_t)queue->descriptors, (uintptr_t)&queue->available, (uintptr_t)&queue->used};
    for (int part = 0; part < 3; part++) {
        write32(card + QUEUE_DESC + 16 * part, (uint32_t)parts[part]);
        write32(card + QUEUE_DESC + 16 * part + 4, (uint32_t)(parts[part] >> 32));
    }
    write32(card + QUEUE_READY, 1);
}

static void receive_post(unsigned buffer)
{
    struct queue *queue = &queues[RX];
    queue->descriptors[buffer] = (struct descriptor){(uintptr_t)queue->buffers[buffer], BUFFER_BYTES, 2, 0};
    queue->available.ring[queue->available.index % QUEUE_FRAMES] = (uint16_t)buffer;
    barrier();
    queue->available.index = (uint16_t)(queue->available.index + 1);
}

static void receive_post_all(void)
{
    for (unsigned buffer = 0; buffer < QUEUE_FRAMES; buffer++)
        receive_post(buffer);
}

static void doorbell(unsigned number)
{
    barrier();
    write32(card + QUEUE_NOTIFY, number);
}

/* Frames that the card has and did not complete. */
static unsigned in_flight(void)
{
    struct queue *queue = &queues[TX];
    queue->seen = queue->used.index;
    return (uint16_t)(queue->available.index - queue->seen);
}

int card_send(const uint8_t *frame, unsigned len_bytes)
{
    struct queue *queue = &queues[TX];
    if (len_bytes > FRAME_BYTES || in_flight() >= QUEUE_FRAMES)
        return 0;
    /* The card completes frames in order, so the oldest buffer is the free one. */
    unsigned buffer = queue->available.index % QUEUE_FRAMES;
    memset(queue->buffers[buffer], 0, header_bytes);
    memcpy(queue->buffers[buffer] + header_bytes, frame, len_bytes);
    queue->descriptors[buffer] =
        (struct descriptor){(uintptr_t)queue->buffers[buffer], header_bytes + len_bytes, 0, 0};
    queue->available.ring[buffer] = (uint16_t)buffer;
    barrier();
    queue->available.index = (uint16_t)(queue->available.index + 1);
    doorbell(TX);
#ifdef POLL
    for (unsigned polls = 0; in_flight(); polls++) {
        if (polls == POLLS_MAX) {
#ifdef PRINT
            print("net: tx timeout\n");
#endif
            return 0;
        }
        udelay(10);
    }
#endif
    return 1;
}

static void card_interrupt(void)
{
    struct queue *queue = &queues[RX];
    write32(card + INTERRUPT_ACK, read32(card + INTERRUPT_STATUS));
#ifndef POLL
    in_flight();
#endif
    unsigned count = 0;
    for (; queue->seen != queue->used.index; count++) {
        barrier();
        unsigned slot = queue->seen % QUEUE_FRAMES;
        unsigned buffer = queue->used.ring[slot].id, len_bytes = queue->used.ring[slot].len_bytes;
        queue->seen++;
        if (buffer >= QUEUE_FRAMES)
            continue;
        if (len_bytes > header_bytes && len_bytes <= BUFFER_BYTES)
            frame_received(queue->buffers[buffer] + header_bytes, len_bytes - header_bytes);
        receive_post(buffer);
    }
    if (count)
        doorbell(RX);
}

int card_start(void)
{
    unsigned slot = 0;
    for (card = SLOTS; read32(card) != 0x74726976 || read32(card + DEVICE_ID) != 1; card += SLOT_BYTES)
        if (++slot == SLOT_COUNT) {
            print("net: no virtio network card in %u slots\n", SLOT_COUNT);
            return 0;
        }
    uint32_t version = read32(card + VERSION);
    header_bytes = version == 1 ? 10 : 12;
    write32(card + STATUS, 0);
    write32(card + STATUS, ACKNOWLEDGE);
    write32(card + STATUS, ACKNOWLEDGE | DRIVER);
    uint32_t status = ACKNOWLEDGE | DRIVER;
    write32(card + DEVICE_FEATURES_SEL, 0);
    write32(card + DRIVER_FEATURES_SEL, 0);
    write32(card + DRIVER_FEATURES, read32(card + DEVICE_FEATURES) & 1u << 5); /* an address of its own */
    if (version == 1) {
        write32(card + GUEST_PAGE_SIZE, 4096);
    } else {
        write32(card + DRIVER_FEATURES_SEL, 1);
        write32(card + DRIVER_FEATURES, 1); /* the new interface */
        status |= FEATURES_OK;
        write32(card + STATUS, status);
    }
    for (unsigned number = RX; number <= TX; number++) {
        write32(card + QUEUE_SEL, number);
        if (read32(card + QUEUE_NUM_MAX) < QUEUE_FRAMES || (version == 2 && !(read32(card + STATUS) & FEATURES_OK))) {
            print("net: the card has no queues of %u frames, or no such features\n", QUEUE_FRAMES);
            return 0;
        }
        queue_start(number, version);
    }
    for (unsigned at = 0; at < 6; at++)
        card_mac[at] = *(volatile uint8_t *)(card + CONFIG + at);
#ifdef RACE
    /* The mistake: the card receives before it has buffers, and no doorbell announces them. A frame that comes while
     * the kernel waits for the link finds none, and then waits for a doorbell, which only a received frame rings. */
    write32(card + STATUS, status | DRIVER_OK);
    interrupt_on(SLOT_INTERRUPT + slot, 0, card_interrupt);
    udelay(LINK_US);
    receive_post_all();
#else
    receive_post_all();
    interrupt_on(SLOT_INTERRUPT + slot, 0, card_interrupt);
    write32(card + STATUS, status | DRIVER_OK);
    doorbell(RX);
    udelay(LINK_US);
#endif
    print("net: virtio card in slot %u, version %u, address %b:%b:%b:%b:%b:%b\n", slot, version, card_mac[0],
          card_mac[1], card_mac[2], card_mac[3], card_mac[4], card_mac[5]);
    return 1;
}
