/* Driver of a virtio network card (modern interface) over memory-mapped registers or PCI, for C.
 *
 * The library allocates nothing, waits for nothing but a reset (100,000 reads at most), has no lock and no thread: one call
 * at a time for each card, so mask the card's interrupt around calls outside of its handler. It uses no floating-point
 * register. wpv_start_mmio, wpv_start_pci and wpv_restart need 16 KiB of stack, the others 1 KiB. Each index, number and
 * length that the card supplies is checked.
 *
 * Four verbs move frames: rx_post, rx_take, tx_post, tx_reap. A frame belongs either to the caller (from wpv_rx_take or
 * wpv_frame_take on) or to the driver (from wpv_rx_post, wpv_tx_post or wpv_frame_free on).
 */
#ifndef WIREPATH_VIRTIO_H
#define WIREPATH_VIRTIO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest frame in bytes, from its Ethernet header on. */
#define WPV_FRAME_BYTES_MAX 1514
/* Bytes of a card's state, aligned to 16. */
#define WPV_STATE_BYTES 8192
/* Frames of a card with rings of `ring` slots. */
#define WPV_POOL_FRAMES(ring) (2 * (ring) + ((ring) < 16 ? (ring) : 16))
/* Bytes of memory, aligned to 4096, that suffice for rings of `ring` slots, 2 to 256. 13,312 for 2, 303,616 for 64. */
#define WPV_MEMORY_BYTES(ring) ((2080 * WPV_POOL_FRAMES(ring) + 52 * (ring) + 640 + 511) / 512 * 512)

enum wpv_error {
    WPV_OK = 0,
    /* Nothing was received, or no frame is free. Not a failure. */
    WPV_EMPTY = 1,
    /* The ring is full. The frame still belongs to the caller: reap, and try again. */
    WPV_FULL = 2,
    /* The caller holds no frame of this number. Nothing was done. */
    WPV_FRAME = 3,
    /* More than WPV_FRAME_BYTES_MAX, or 0. The frame still belongs to the caller. */
    WPV_LENGTH = 4,
    /* A pointer is null or not aligned. */
    WPV_ARGUMENT = 5,
    /* The state or the memory is too small, or the memory is not page-aligned. */
    WPV_MEMORY = 6,
    /* No virtio device there. */
    WPV_NOT_VIRTIO = 7,
    /* A device of the legacy interface; with QEMU: -global virtio-mmio.force-legacy=false. */
    WPV_LEGACY = 8,
    /* A virtio device of another kind, or an empty slot. */
    WPV_NOT_NET = 9,
    /* The device does not finish its reset. */
    WPV_RESET_TIMEOUT = 10,
    /* The device lacks a feature, or refuses those chosen. */
    WPV_FEATURES = 11,
    /* A queue is missing, too small, in use, or cannot be enabled. */
    WPV_QUEUE = 12,
    /* The device failed during its start. */
    WPV_FAILED = 13,
    /* A structure of the PCI function is missing or exceeds its BAR. */
    WPV_PCI_CAPABILITY = 14,
    /* A BAR has no valid size or address. */
    WPV_PCI_BAR = 15,
    /* The window is too small for the BARs. */
    WPV_PCI_WINDOW = 16,
    /* The function has no MSI-X table of as many entries. */
    WPV_PCI_MSIX = 17,
    /* Packed rings need coherent caches: processor and card write the same lines. */
    WPV_COHERENCE = 18,
    /* The card broke the protocol. What it named was skipped, and no frame is lost. */
    WPV_FAULT = 32,
    /* The card broke the protocol: call wpv_restart. Repeats until then. */
    WPV_RESTART = 33,
};

/* A started card; lies in the caller's state. */
struct wpv_card;

/* The caller's memory. All of it belongs to the driver while the card is in use, but for frames that the caller holds. */
struct wpv_memory {
    /* WPV_STATE_BYTES, aligned to 16, for the processor alone. */
    void *state;
    size_t state_bytes;
    /* WPV_MEMORY_BYTES of the rings' size, aligned to 4096, shared with the card. */
    void *shared;
    size_t shared_bytes;
    /* Address of `shared` for the card: its physical address, if no IOMMU is between. */
    uint64_t shared_address;
    /* Where the card does not see the processor's caches, else both null: writes the lines of a range back, and drops
     * them. Lines of at most 64 bytes. */
    void (*clean)(void *start, size_t len_bytes);
    void (*invalidate)(void *start, size_t len_bytes);
};

/* What is not 0 is used if the device offers it. */
struct wpv_settings {
    /* Slots of each ring, 2 to 256; the nearest is taken. The device may have less. */
    uint16_t ring_frames;
    /* Fewer interrupts and doorbells by VIRTIO_F_EVENT_IDX; wpv_rx_enable_interrupts asks for the next one. */
    uint8_t event_idx;
    /* VIRTIO_F_RING_PACKED. */
    uint8_t packed;
    /* VIRTIO_F_INDIRECT_DESC. */
    uint8_t indirect;
    /* An interrupt for frames sent, too. */
    uint8_t tx_interrupts;
};

/* A write to memory that is an interrupt, as the interrupt controller wants it. */
struct wpv_message {
    uint64_t address;
    uint32_t data;
};

/* A PCI function. */
struct wpv_pci {
    /* Its configuration space, 256 bytes at least, mapped as a device (ECAM). */
    void *config;
    /* Addresses on the bus, from start to before end, for BARs that have none; both 0 where firmware gave all of them. */
    uint64_t window_start, window_end;
    /* Added to an address on the bus, it is where the processor has it mapped, as a device. */
    intptr_t virtual_offset;
    /* 0: the interrupt pin. 1: messages[0] for all. 2: messages[0] for received frames, messages[1] for sent ones. */
    uint32_t message_count;
    struct wpv_message messages[2];
};

/* A frame that the caller holds. */
struct wpv_frame {
    /* From the Ethernet header on; room for WPV_FRAME_BYTES_MAX. */
    uint8_t *bytes;
    /* Its number, for the functions below. */
    uint16_t number;
    uint16_t len_bytes;
};

/* Exact bytes of a card's state, and of shared memory for rings of `ring_frames`. */
size_t wpv_state_bytes(void);
size_t wpv_memory_bytes(uint16_t ring_frames);

/* Starts the card whose virtio-mmio registers (512 bytes) are at `registers`, with all receive buffers posted: a frame may
 * raise the interrupt before this returns. On WPV_OK `*card` is set. */
enum wpv_error wpv_start_mmio(struct wpv_card **card, const struct wpv_memory *memory,
                              const struct wpv_settings *settings, void *registers);
/* The same for a PCI function. */
enum wpv_error wpv_start_pci(struct wpv_card **card, const struct wpv_memory *memory,
                             const struct wpv_settings *settings, const struct wpv_pci *pci);
/* Resets and starts the card again. Frames in flight are lost, and free; the caller keeps those it holds. */
enum wpv_error wpv_restart(struct wpv_card *card);
/* 1 if the device asks for a restart, else 0. */
int wpv_needs_restart(struct wpv_card *card);

/* Writes the card's address, 6 bytes. WPV_EMPTY if it has none. */
enum wpv_error wpv_mac(struct wpv_card *card, uint8_t *mac);
/* Negotiated feature bits. */
uint64_t wpv_features(struct wpv_card *card);
/* Acknowledges the interrupt. Call before the rings are drained. Bit 0: frames were received or sent; bit 1: call
 * wpv_needs_restart. With messages always both. */
uint32_t wpv_interrupt(struct wpv_card *card);

/* Takes a received frame. WPV_EMPTY, WPV_FAULT and WPV_RESTART leave `*frame` as it is. */
enum wpv_error wpv_rx_take(struct wpv_card *card, struct wpv_frame *frame);
/* Hands a held frame to the card for receiving. */
enum wpv_error wpv_rx_post(struct wpv_card *card, uint16_t number);
/* Shows posted buffers to the card, and posts free ones in place of those that were sent. Required after wpv_rx_post: a card
 * without buffers waits for it. */
void wpv_rx_kick(struct wpv_card *card);
/* Interrupts for received frames. Enabling returns 1 if one is there already: take it, and enable again. */
int wpv_rx_enable_interrupts(struct wpv_card *card);
void wpv_rx_disable_interrupts(struct wpv_card *card);

/* Takes a free frame, to be written and sent. */
enum wpv_error wpv_frame_take(struct wpv_card *card, struct wpv_frame *frame);
/* Returns a held frame unsent. */
enum wpv_error wpv_frame_free(struct wpv_card *card, uint16_t number);
/* Hands the first `len_bytes` of a held frame to the card for sending; one that was received, too. */
enum wpv_error wpv_tx_post(struct wpv_card *card, uint16_t number, size_t len_bytes);
/* Shows posted frames to the card. */
void wpv_tx_kick(struct wpv_card *card);
/* Reclaims sent frames. `*count`, unless null, is their number, also after a fault. */
enum wpv_error wpv_tx_reap(struct wpv_card *card, uint16_t *count);
/* As for received frames. */
int wpv_tx_enable_interrupts(struct wpv_card *card);
void wpv_tx_disable_interrupts(struct wpv_card *card);

#ifdef __cplusplus
}
#endif
#endif
