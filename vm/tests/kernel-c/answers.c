/* Answers to ARP and ICMP echo requests, as RFC 826 and RFC 792 have them. */
#include "kernel.h"

#define ETHERNET 14

static uint8_t address[4] = {192, 168, 1, 2};
static uint8_t answer[FRAME_BYTES];

void address_from(const char *line, unsigned len_bytes)
{
    unsigned value = 0, count = 0;
    for (; len_bytes > 3 && memcmp(line, "ip=", 3); line++, len_bytes--)
        ;
    if (len_bytes <= 3)
        return;
    uint8_t found[4];
    for (line += 3, len_bytes -= 3; len_bytes; line++, len_bytes--) {
        if (*line >= '0' && *line <= '9') {
            value = value * 10 + (unsigned)(*line - '0');
        } else {
            found[count++] = (uint8_t)value;
            value = 0;
            if (*line != '.' || count == 4)
                break;
        }
    }
    if (count == 4)
        memcpy(address, found, 4);
}

static unsigned big16(const uint8_t *at) { return (unsigned)at[0] << 8 | at[1]; }

static uint16_t checksum(const uint8_t *bytes, unsigned len_bytes)
{
    uint32_t sum = 0;
    for (unsigned at = 0; at + 1 < len_bytes; at += 2)
        sum += big16(bytes + at);
    if (len_bytes % 2)
        sum += (uint32_t)bytes[len_bytes - 1] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static void send_answer(unsigned len_bytes)
{
#ifdef PRINT
    print("net: tx %u bytes to %b:%b:%b:%b:%b:%b from %b:%b:%b:%b:%b:%b\n", len_bytes, answer[0], answer[1],
          answer[2], answer[3], answer[4], answer[5], answer[6], answer[7], answer[8], answer[9], answer[10],
          answer[11]);
#endif
    card_send(answer, len_bytes);
}

void frame_received(const uint8_t *frame, unsigned len_bytes)
{
    if (len_bytes < ETHERNET || len_bytes > FRAME_BYTES)
        return;
    unsigned type = big16(frame + 12);
#ifdef PRINT
    print("net: rx %u bytes type %x from %b:%b:%b:%b:%b:%b to %b:%b:%b:%b:%b:%b, payload of %u bytes begins %b%b%b%b\n",
          len_bytes, (unsigned long)type, frame[6], frame[7], frame[8], frame[9], frame[10], frame[11], frame[0],
          frame[1], frame[2], frame[3], frame[4], frame[5], len_bytes - ETHERNET, frame[14], frame[15], frame[16],
          frame[17]);
#endif
    const uint8_t *body = frame + ETHERNET;
    unsigned body_bytes = len_bytes - ETHERNET;
    memcpy(answer, frame + 6, 6);
    memcpy(answer + 6, card_mac, 6);
    memcpy(answer + 12, frame + 12, 2);
    uint8_t *to = answer + ETHERNET;
    if (type == 0x0806 && body_bytes >= 28 && big16(body + 6) == 1 && !memcmp(body + 24, address, 4)) {
        memcpy(to, body, 6);
        to[6] = 0;
        to[7] = 2;
        memcpy(to + 8, card_mac, 6);
        memcpy(to + 14, address, 4);
        memcpy(to + 18, body + 8, 10);
        send_answer(ETHERNET + 28);
    } else if (type == 0x0800 && body_bytes >= 28 && body[0] == 0x45 && body[9] == 1 && body[20] == 8 &&
               !memcmp(body + 16, address, 4)) {
        unsigned total_bytes = big16(body + 2);
        if (total_bytes < 28 || total_bytes > body_bytes)
            return;
        memcpy(to, body, total_bytes);
        memcpy(to + 12, body + 16, 4);
        memcpy(to + 16, body + 12, 4);
        to[20] = to[22] = to[23] = 0;
        uint16_t sum = checksum(to + 20, total_bytes - 20);
        to[22] = (uint8_t)(sum >> 8);
        to[23] = (uint8_t)sum;
        send_answer(ETHERNET + total_bytes);
    }
}
