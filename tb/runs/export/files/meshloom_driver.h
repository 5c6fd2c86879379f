/* Runs the workload of meshloom_image.h on a chip. See docs/export.md. */
#ifndef MESHLOOM_DRIVER_H
#define MESHLOOM_DRIVER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum meshloom_result {
    MESHLOOM_PASS,        /* every byte is right */
    MESHLOOM_WRONG_CHIP,  /* `actual` is what ID or CONFIG read, instead of `expected` */
    MESHLOOM_NOT_READY,   /* the chip does not get ready to start: DRAM has not answered all that it was asked */
    MESHLOOM_FAULT,       /* it stopped: `fault_who`, `fault_value` */
    MESHLOOM_TIMEOUT,     /* it did not end within MESHLOOM_POLLS looks at STATUS */
    MESHLOOM_WRONG_BYTE   /* byte `address` of `channel` is `actual` instead of `expected` */
};

struct meshloom_report {
    enum meshloom_result result;
    uint32_t cycles;
    uint32_t fault_who;
    uint32_t fault_value;
    uint32_t channel;
    uint32_t address;
    uint32_t expected;
    uint32_t actual;
};

/* Steps of a run, in this order; each says whether it went well, and `report` why not. The reset ends whatever the chip
 * was doing, once its DRAM is at rest, so that a run does not depend on the one before. */
int meshloom_check_chip(struct meshloom_report *report);
int meshloom_reset(struct meshloom_report *report);
void meshloom_load(void);
void meshloom_start(void);
int meshloom_wait(struct meshloom_report *report);
int meshloom_compare(struct meshloom_report *report);

/* All of them. */
enum meshloom_result meshloom_run(struct meshloom_report *report);

#ifdef __cplusplus
}
#endif

#endif
