/* The interrupt controller GICv2, which turns messages of PCI into interrupts by its frame v2m. */
#include "kernel.h"

#define GICD 0x08000000UL
#define GICC 0x08010000UL

void controller_start(unsigned private_id)
{
    write32(GICD, 1);
    write32(GICD + 0x100, 1u << private_id);
    write32(GICC + 4, 0xff); /* all priorities */
    write32(GICC, 1);
}

void controller_enable(unsigned id, int is_edge)
{
    write32(GICD + 0xc00 + id / 16 * 4, is_edge ? 2u << id % 16 * 2 : 0);
    *(volatile uint8_t *)(GICD + 0x800 + id) = 1; /* to CPU 0 */
    write32(GICD + 0x100 + id / 32 * 4, 1u << id % 32);
}

unsigned controller_take(void)
{
    return read32(GICC + 0xc) & 0x3ff;
}

void controller_end(unsigned id)
{
    write32(GICC + 0x10, id);
}
