/* The card by Wirepath's driver, over registers in memory; PCI: over PCI, MESSAGES: with interrupts by message. */
#include "kernel.h"
#include "wirepath_virtio.h"

#define RING_FRAMES 64

_Static_assert(sizeof(struct wpv_memory) == 56, "as the library has it");
_Static_assert(sizeof(struct wpv_settings) == 6, "as the library has it");
_Static_assert(sizeof(struct wpv_pci) == 72, "as the library has it");
_Static_assert(sizeof(struct wpv_frame) == 16, "as the library has it");

uint8_t card_mac[6];
static uint8_t state[WPV_STATE_BYTES] __attribute__((aligned(16)));
static uint8_t shared[WPV_MEMORY_BYTES(RING_FRAMES)] __attribute__((aligned(4096)));
static struct wpv_card *card;

int card_send(const uint8_t *bytes, unsigned len_bytes)
{
    struct wpv_frame frame;
    wpv_tx_reap(card, 0);
    if (len_bytes > WPV_FRAME_BYTES_MAX || wpv_frame_take(card, &frame) != WPV_OK)
        return 0;
    memcpy(frame.bytes, bytes, len_bytes);
    if (wpv_tx_post(card, frame.number, len_bytes) != WPV_OK) {
        wpv_frame_free(card, frame.number);
        return 0;
    }
    wpv_tx_kick(card);
    return 1;
}

static void card_interrupt(void)
{
    struct wpv_frame frame;
    wpv_interrupt(card);
    do {
        enum wpv_error error;
        while ((error = wpv_rx_take(card, &frame)) != WPV_EMPTY) {
            if (error == WPV_OK) {
                frame_received(frame.bytes, frame.len_bytes);
                wpv_rx_post(card, frame.number);
            } else if (error != WPV_FAULT) {
                print("net: card failed, restart: error %u\n", wpv_restart(card));
                break;
            }
        }
        wpv_rx_kick(card);
    } while (wpv_rx_enable_interrupts(card));
}

#ifdef PCI

/* Writes the lines of a range back, or drops them, as a machine without coherent devices needs it. */
static void clean(void *start, size_t len_bytes)
{
    for (uintptr_t line = (uintptr_t)start & ~63UL; line < (uintptr_t)start + len_bytes; line += 64)
        __asm__ volatile("dc cvac, %0" ::"r"(line) : "memory");
    __asm__ volatile("dsb sy" ::: "memory");
}

static void invalidate(void *start, size_t len_bytes)
{
    for (uintptr_t line = (uintptr_t)start & ~63UL; line < (uintptr_t)start + len_bytes; line += 64)
        __asm__ volatile("dc ivac, %0" ::"r"(line) : "memory");
    __asm__ volatile("dsb sy" ::: "memory");
}

static uint64_t big64(const uint8_t *at) { return (uint64_t)big32(at) << 32 | big32(at + 4); }

/* The 32-bit window of the host bridge's `ranges`: flags, address on the bus, address of the processor, length. */
static int find_window(struct wpv_pci *pci)
{
    unsigned length = 0;
    const uint8_t *range = tree_property("pcie@", "ranges", &length);
    for (; range && length >= 28; range += 28, length -= 28) {
        if (big32(range) >> 24 != 2)
            continue;
        pci->window_start = big64(range + 4);
        pci->window_end = pci->window_start + big64(range + 20);
        pci->virtual_offset = (intptr_t)(big64(range + 12) - pci->window_start);
        return 1;
    }
    return 0;
}

/* Interrupt of a function: one of the controller's messages, or of the bridge's four pins. */
static unsigned interrupt_of(struct wpv_pci *pci, unsigned slot)
{
#ifdef MESSAGES
    (void)slot;
    unsigned length = 0;
    const uint8_t *frame = tree_property("v2m@", "reg", &length);
    if (!frame)
        return 0;
    unsigned id = read32(big64(frame) + 8) >> 16 & 0x3ff;
    pci->message_count = 1;
    pci->messages[0] = (struct wpv_message){big64(frame) + 0x40, id};
    return id;
#else
    uint8_t pin = (uint8_t)(read32((uintptr_t)pci->config + 0x3c) >> 8);
    return 32 + 3 + (slot + pin - 1) % 4;
#endif
}

static enum wpv_error start(const struct wpv_memory *memory, const struct wpv_settings *settings)
{
    struct wpv_pci pci = {0};
    unsigned length = 0;
    const uint8_t *space = tree_property("pcie@", "reg", &length);
    if (!space || !find_window(&pci))
        return WPV_PCI_WINDOW;
    enum wpv_error error = WPV_NOT_VIRTIO;
    for (unsigned slot = 0; slot < 32 && error == WPV_NOT_VIRTIO; slot++) {
        pci.config = (void *)(big64(space) + ((uintptr_t)slot << 15));
        if (read32((uintptr_t)pci.config) == ~0u)
            continue;
        interrupt_on(interrupt_of(&pci, slot), pci.message_count != 0, card_interrupt);
        error = wpv_start_pci(&card, memory, settings, &pci);
    }
    return error;
}

#else

#define clean 0
#define invalidate 0

static enum wpv_error start(const struct wpv_memory *memory, const struct wpv_settings *settings)
{
    enum wpv_error error = WPV_NOT_NET;
    for (unsigned slot = 0; slot < 32 && error == WPV_NOT_NET; slot++) {
        uintptr_t registers = 0x0a000000 + 0x200 * slot;
        interrupt_on(48 + slot, 0, card_interrupt);
        error = wpv_start_mmio(&card, memory, settings, (void *)registers);
    }
    return error;
}

#endif

int card_start(void)
{
    const struct wpv_memory memory = {state, sizeof state, shared, sizeof shared, (uintptr_t)shared, clean, invalidate};
    const struct wpv_settings settings = {.ring_frames = RING_FRAMES, .event_idx = 1};
    /* The controller listens before the card starts, and the handler runs when it has a card. */
    __asm__ volatile("msr daifset, #2");
    enum wpv_error error = start(&memory, &settings);
    if (error == WPV_OK)
        error = wpv_mac(card, card_mac);
    __asm__ volatile("msr daifclr, #2");
    if (error != WPV_OK) {
        print("net: no card, error %u\n", error);
        return 0;
    }
    print("net: card by the library, features %x\n", wpv_features(card));
    return 1;
}
