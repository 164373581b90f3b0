/* The interrupt controller GICv3. */
#include "kernel.h"

#define GICD 0x08000000UL
#define GICR 0x080a0000UL
#define GICR_SGI (GICR + 0x10000)

void controller_start(unsigned private_id)
{
    write32(GICD, 0x10);        /* affinity routing first, */
    write32(GICD, 0x13);        /* then both groups */
    write32(GICR + 0x14, 0);    /* wake */
    while (read32(GICR + 0x14) & 4)
        ;
    write32(GICR_SGI + 0x80, ~0u);
    write32(GICR_SGI + 0x100, 1u << private_id);
    __asm__ volatile("msr S3_0_C12_C12_5, %0; isb" ::"r"(7UL)); /* ICC_SRE_EL1 */
    __asm__ volatile("msr S3_0_C4_C6_0, %0" ::"r"(0xffUL));     /* ICC_PMR_EL1 */
    __asm__ volatile("msr S3_0_C12_C12_7, %0; isb" ::"r"(1UL)); /* ICC_IGRPEN1_EL1 */
}

void controller_enable(unsigned id, int is_edge)
{
    uintptr_t word = id / 32 * 4;
    write32(GICD + 0x80 + word, read32(GICD + 0x80 + word) | 1u << id % 32);
    write32(GICD + 0xc00 + id / 16 * 4, is_edge ? 2u << id % 16 * 2 : 0);
    *(volatile uint64_t *)(GICD + 0x6000 + id * 8) = 0;
    write32(GICD + 0x100 + word, 1u << id % 32);
}

unsigned controller_take(void)
{
    uint64_t id;
    __asm__ volatile("mrs %0, S3_0_C12_C12_0; dsb sy" : "=r"(id)); /* ICC_IAR1_EL1 */
    return (unsigned)id;
}

void controller_end(unsigned id)
{
    __asm__ volatile("msr S3_0_C12_C12_1, %0; isb" ::"r"((uint64_t)id)); /* ICC_EOIR1_EL1 */
}
