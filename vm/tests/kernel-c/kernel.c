/* Console, ticks and device tree of the machine. */
#include "kernel.h"
#include <stdarg.h>

#define UART 0x09000000UL
#define TREE 0x40000000UL
#define TICK_INTERRUPT 27
#define TICKS_PER_SECOND 1000

static volatile unsigned ticks;
static volatile int is_in_interrupt;
static unsigned handled_id;
static void (*handler)(void);

void *memcpy(void *to, const void *from, __SIZE_TYPE__ bytes)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    while (bytes--)
        *t++ = *f++;
    return to;
}

void *memset(void *to, int value, __SIZE_TYPE__ bytes)
{
    uint8_t *t = to;
    while (bytes--)
        *t++ = (uint8_t)value;
    return to;
}

int memcmp(const void *a, const void *b, __SIZE_TYPE__ bytes)
{
    const uint8_t *x = a, *y = b;
    for (; bytes; bytes--, x++, y++)
        if (*x != *y)
            return *x - *y;
    return 0;
}

__SIZE_TYPE__ strlen(const char *text)
{
    __SIZE_TYPE__ length = 0;
    while (text[length])
        length++;
    return length;
}

static void put(char c)
{
    while (read32(UART + 0x18) & 0x20)
        ;
    write32(UART, (uint8_t)c);
}

static void put_number(unsigned long number, unsigned base, int digits_min)
{
    char text[20];
    int length = 0;
    do {
        text[length++] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number || length < digits_min);
    while (length)
        put(text[--length]);
}

void print(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    for (; *format; format++) {
        if (*format != '%') {
            put(*format);
            continue;
        }
        switch (*++format) {
        case 's':
            for (const char *text = va_arg(values, const char *); *text; text++)
                put(*text);
            break;
        case 'u':
            put_number(va_arg(values, unsigned), 10, 1);
            break;
        case 'b':
            put_number(va_arg(values, unsigned), 16, 2);
            break;
        case 'x':
            put_number(va_arg(values, unsigned long), 16, 1);
            break;
        }
    }
    va_end(values);
}

static void set_next_tick(void)
{
    uint64_t frequency;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
    __asm__ volatile("msr cntv_tval_el0, %0" ::"r"(frequency / TICKS_PER_SECOND));
}

void udelay(unsigned us)
{
    if (is_in_interrupt)
        return;
    unsigned begin = ticks, wanted = (us + 999) / 1000;
    while (ticks - begin < wanted)
        __asm__ volatile("wfi");
}

/* The caches and the MMU: devices in the first GiB and where the configuration of PCI is, RAM in the second. */
static void mmu_on(void)
{
    static uint64_t gibibytes[512] __attribute__((aligned(4096)));
    const uint64_t block = 1, accessed = 1 << 10, shared = 3 << 8, normal = 1 << 2;
    gibibytes[0] = block | accessed;
    gibibytes[1] = 0x40000000UL | block | accessed | shared | normal;
    gibibytes[256] = 256UL << 30 | block | accessed;
    __asm__ volatile("msr mair_el1, %0" ::"r"(0xff00UL));
    /* 39 bits of address, pages of 4 KiB, cached walks, no upper half, 40 physical bits. */
    __asm__ volatile("msr tcr_el1, %0" ::"r"(25UL | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2UL << 32));
    __asm__ volatile("msr ttbr0_el1, %0; dsb sy; tlbi vmalle1; dsb sy; isb" ::"r"(gibibytes));
    uint64_t control;
    __asm__ volatile("mrs %0, sctlr_el1" : "=r"(control));
    __asm__ volatile("msr sctlr_el1, %0; isb" ::"r"(control | 1 | 1 << 2 | 1 << 12) : "memory");
}

static void interrupts_start(void)
{
    controller_start(TICK_INTERRUPT);
    set_next_tick();
    __asm__ volatile("msr cntv_ctl_el0, %0; isb" ::"r"(1UL));
}

void interrupt_on(unsigned id, int is_edge, void (*function)(void))
{
    handled_id = id;
    handler = function;
    controller_enable(id, is_edge);
}

void kernel_interrupt(void)
{
    unsigned id = controller_take();
    if (id >= 1020)
        return;
    is_in_interrupt = 1;
    if (id == TICK_INTERRUPT) {
        ticks = ticks + 1;
        set_next_tick();
    } else if (id == handled_id) {
        handler();
    }
    is_in_interrupt = 0;
    controller_end(id);
}

void kernel_fault(unsigned long syndrome, unsigned long at, unsigned long address)
{
    print("fault: syndrome %x at %x, address %x\n", syndrome, at, address);
    for (;;)
        __asm__ volatile("wfi");
}

uint32_t big32(const void *word)
{
    const uint8_t *at = word;
    return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

const void *tree_property(const char *node, const char *name, unsigned *len_bytes)
{
    const uint8_t *tree = (const uint8_t *)TREE;
    if (big32(tree) != 0xd00dfeed)
        return 0;
    const uint8_t *end = tree + big32(tree + 4);
    const char *names = (const char *)tree + big32(tree + 12);
    int is_in_node = 0;
    for (const uint8_t *at = tree + big32(tree + 8); at < end;) {
        uint32_t token = big32(at);
        at += 4;
        if (token == 1) { /* a node begins: its name */
            is_in_node = !memcmp(at, node, strlen(node));
            at += (strlen((const char *)at) + 4) & ~3UL;
        } else if (token == 3) { /* a property: length, name, value */
            unsigned length = big32(at);
            const char *found = names + big32(at + 4);
            if (is_in_node && strlen(found) == strlen(name) && !memcmp(found, name, strlen(name))) {
                *len_bytes = length;
                return at + 8;
            }
            at += 8 + ((length + 3) & ~3U);
        } else if (token == 9) { /* the end */
            return 0;
        }
    }
    return 0;
}

void kernel_main(void)
{
    unsigned length = 0;
    mmu_on();
    write32(UART + 0x2c, 0x70);  /* eight bits, queues on */
    write32(UART + 0x30, 0x301); /* UART and both directions on */
    interrupts_start();
    const char *command_line = tree_property("chosen", "bootargs", &length);
    address_from(command_line, command_line ? length : 0);
    __asm__ volatile("msr daifclr, #2");
    if (card_start())
        print("Net ready\n");
    for (;;)
        __asm__ volatile("wfi");
}
