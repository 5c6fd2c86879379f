/* Runs the workload of meshloom_image.h: loads DRAM, starts the chip, waits for its end, compares the outputs.
 *
 * C99, which compilers of C++ take too, with nothing of a C library but memcpy. It reaches the chip by four macros. On a
 * system where registers and DRAM are memory, MESHLOOM_REGISTERS and MESHLOOM_DRAM(channel) are all that it needs: the
 * address of the register ID, and that of byte 0 of a DRAM channel. Elsewhere define the four macros themselves. Put
 * either into a header and name that with -DMESHLOOM_BOARD='"board.h"'. If DRAM is cached, the macros MESHLOOM_PUT and
 * MESHLOOM_GET must see to it that the chip sees what was put, and that what it wrote is read.
 */
#include "meshloom_driver.h"

#include <string.h>

#include "meshloom_image.h"

#ifdef MESHLOOM_BOARD
#include MESHLOOM_BOARD
#endif

/* A register, by its byte address. */
#ifndef MESHLOOM_READ
#define MESHLOOM_READ(address) (*(volatile uint32_t *)((uintptr_t)(MESHLOOM_REGISTERS) + (address)))
#endif
#ifndef MESHLOOM_WRITE
#define MESHLOOM_WRITE(address, value) \
    ((void)(*(volatile uint32_t *)((uintptr_t)(MESHLOOM_REGISTERS) + (address)) = (value)))
#endif
/* `size` bytes of a DRAM channel from byte `address` on. */
#ifndef MESHLOOM_PUT
#define MESHLOOM_PUT(channel, address, bytes, size) \
    ((void)memcpy((void *)((uintptr_t)(MESHLOOM_DRAM(channel)) + (address)), (bytes), (size)))
#endif
#ifndef MESHLOOM_GET
#define MESHLOOM_GET(channel, address, bytes, size) \
    ((void)memcpy((bytes), (const void *)((uintptr_t)(MESHLOOM_DRAM(channel)) + (address)), (size)))
#endif
/* Looks at STATUS before giving up; the chip's own watchdog ends a run that hangs long before. */
#ifndef MESHLOOM_POLLS
#define MESHLOOM_POLLS 0xffffffffu
#endif
/* Looks at STATUS after reset until the chip must be ready. */
#ifndef MESHLOOM_READY_POLLS
#define MESHLOOM_READY_POLLS 1000u
#endif
/* Bytes that are read back at once. */
#ifndef MESHLOOM_CHUNK
#define MESHLOOM_CHUNK 64u
#endif

static int fail(struct meshloom_report *report, enum meshloom_result result)
{
    report->result = result;
    return 0;
}

static int reads(struct meshloom_report *report, uint32_t address, uint32_t expected)
{
    report->expected = expected;
    report->actual = MESHLOOM_READ(address);
    return report->actual == expected;
}

int meshloom_check_chip(struct meshloom_report *report)
{
    if (!reads(report, MESHLOOM_ID, MESHLOOM_CHIP_ID) || !reads(report, MESHLOOM_CONFIG, MESHLOOM_CHIP_CONFIG))
        return fail(report, MESHLOOM_WRONG_CHIP);
    return 1;
}

void meshloom_load(void)
{
    uint32_t i;

    for (i = 0; i < MESHLOOM_LOADS; i++) {
        const struct meshloom_range *range = &meshloom_loads[i];
        MESHLOOM_PUT(range->channel, range->address, range->bytes, range->size);
    }
}

int meshloom_reset(struct meshloom_report *report)
{
    uint32_t polls = 0;

    MESHLOOM_WRITE(MESHLOOM_CONTROL, MESHLOOM_CONTROL_RESET);
    while (!(MESHLOOM_READ(MESHLOOM_STATUS) & MESHLOOM_STATUS_READY))
        if (++polls >= MESHLOOM_READY_POLLS)
            return fail(report, MESHLOOM_NOT_READY);
    return 1;
}

void meshloom_start(void)
{
    MESHLOOM_WRITE(MESHLOOM_PROGRAM_TILE, MESHLOOM_RUN_PROGRAM_TILE);
    MESHLOOM_WRITE(MESHLOOM_PROGRAM_ADDR, MESHLOOM_RUN_PROGRAM_ADDR);
    MESHLOOM_WRITE(MESHLOOM_PROGRAM_COUNT, MESHLOOM_RUN_PROGRAM_COUNT);
    MESHLOOM_WRITE(MESHLOOM_WATCHDOG, MESHLOOM_RUN_WATCHDOG);
    MESHLOOM_WRITE(MESHLOOM_STALL_LIMIT, MESHLOOM_RUN_STALL_LIMIT);
    MESHLOOM_WRITE(MESHLOOM_CONTROL, MESHLOOM_RUN_CONTROL);
}

int meshloom_wait(struct meshloom_report *report)
{
    uint32_t polls = 0;
    uint32_t status;

    do {
        status = MESHLOOM_READ(MESHLOOM_STATUS);
        if (polls++ == MESHLOOM_POLLS)
            return fail(report, MESHLOOM_TIMEOUT);
    } while (!(status & (MESHLOOM_STATUS_DONE | MESHLOOM_STATUS_FAULT)));
    report->cycles = MESHLOOM_READ(MESHLOOM_CYCLES);
    if (status & MESHLOOM_STATUS_FAULT) {
        report->fault_who = MESHLOOM_READ(MESHLOOM_FAULT_WHO);
        report->fault_value = MESHLOOM_READ(MESHLOOM_FAULT_VALUE);
        return fail(report, MESHLOOM_FAULT);
    }
    return 1;
}

static int compare_range(struct meshloom_report *report, const struct meshloom_range *range)
{
    uint8_t chunk[MESHLOOM_CHUNK];
    uint32_t at, i, size;

    for (at = 0; at < range->size; at += size) {
        size = range->size - at < MESHLOOM_CHUNK ? range->size - at : MESHLOOM_CHUNK;
        MESHLOOM_GET(range->channel, range->address + at, chunk, size);
        for (i = 0; i < size; i++) {
            uint8_t count = range->compared ? range->compared[at + i] : 0xff;
            if ((chunk[i] ^ range->bytes[at + i]) & count) {
                report->channel = range->channel;
                report->address = range->address + at + i;
                report->expected = range->bytes[at + i];
                report->actual = chunk[i];
                return fail(report, MESHLOOM_WRONG_BYTE);
            }
        }
    }
    return 1;
}

int meshloom_compare(struct meshloom_report *report)
{
    uint32_t i;

    for (i = 0; i < MESHLOOM_OUTPUTS; i++)
        if (!compare_range(report, &meshloom_outputs[i]))
            return 0;
    return 1;
}

enum meshloom_result meshloom_run(struct meshloom_report *report)
{
    static const struct meshloom_report blank = {MESHLOOM_PASS, 0, 0, 0, 0, 0, 0, 0};

    *report = blank;
    if (!meshloom_check_chip(report) || !meshloom_reset(report))
        return report->result;
    meshloom_load();
    meshloom_start();
    if (!meshloom_wait(report) || !meshloom_compare(report))
        return report->result;
    return MESHLOOM_PASS;
}
