/* The driver stand-in: the scenario's current values (slots), and access to them. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include "nvml_abi.h"
#include "slots.h"

#define EXPORT __attribute__((visibility("default")))

struct running {
    u32 pid, lists, gpu_instance, compute_instance;
    u64 memory;
    char *name;
};
enum process_list { LIST_COMPUTE = 1, LIST_GRAPHICS = 2, LIST_MPS = 4 };

struct process_table {
    struct running *entries;
    u32 count, room;
};
struct sample_table {
    struct process_sample *entries;
    u32 count, room;
};
struct account {
    u32 pid;
    struct accounting stats;
};
struct account_table {
    struct account *entries;
    u32 count, room;
};
struct xid {
    u32 code;
    u64 come, told;
};

/* A GPU or a MIG device as the scenario has it now. */
struct device {
    u64 number[SLOTS];
    bool given[SLOTS];
    char *text[TEXTS];
    struct process_table processes;
};

struct gpu {
    struct device card;
    struct device *migs[MAX_MIGS];
    struct sample_table samples;
    struct account_table accounts;
    struct xid xids[MAX_XIDS];
    u32 xid_count;
    bool known;
};

enum fault_kind {
    FAULT_HANG,
    FAULT_SLEEP,
    FAULT_ERROR,
    FAULT_GARBAGE,
    FAULT_LOST,
    FAULT_ABSENT,
    FAULT_DRIVER_GONE,
    FAULT_VERSION_MISMATCH,
    FAULT_KINDS
};
struct fault {
    enum fault_kind kind;
    char function[80];
    int gpu; /* -1: any */
    bool has_value;
    u64 value;
    double from, until;
};

/* world.c: the state, guarded by the one lock that enter() takes */
struct world {
    struct gpu gpus[MAX_GPUS];
    struct fault faults[MAX_FAULTS];
    u32 fault_count;
    char driver_version[80], nvml_version[80];
    u64 cuda_version;
    bool no_mig_monitor; /* this process has not the right to monitor MIG */
    double next_frame; /* seconds; infinite when the last one is played */
    bool broken;       /* the file has a malformed line: none of it is used */
};
extern struct world world;
void world_clear(bool forget_xids);
void world_play_line(const char *key, char *value);

/* scenario.c: time, and the scenario file */
void scenario_refresh(void);
void scenario_look_again(void);
bool scenario_choose(const char *path);
const char *scenario_path(void);
double scenario_now(void);
u64 scenario_zero_us(void);
void scenario_set_zero(double wall);
void scenario_mistake(const char *what, const char *line);
u64 wall_clock_us(void);

/* keys.c */
int key_slot(const char *key);
int key_text(const char *key);

/* faults.c */
bool fault_parse(char *words, struct fault *fault);
const struct fault *fault_active(enum fault_kind kind, const char *function, int gpu);
double fault_next_edge(double now);
bool driver_was_gone_since(double moment);

/* events.c */
void events_publish(int gpu);

/* session.c: the lock, initialisation, handles. enter*() returns OK with the lock held, anything else
 * without; leave() lets it go. */
struct target {
    int gpu, mig;
    struct device *device;
}; /* mig is -1 for the whole GPU */
enum handle_kind { DEVICE_HANDLE, GPU_INSTANCE_HANDLE, COMPUTE_INSTANCE_HANDLE };
void lock(void);
void unlock(void);
int enter(const char *function);
int enter_device(const char *function, handle device, struct target *target);
int enter_kind(const char *function, handle object, enum handle_kind kind, struct target *target);
int leave(int status);
handle make_handle(enum handle_kind kind, int gpu, int mig);
bool gpu_present(int gpu);
bool gpu_lost(int gpu);
bool session_over(void);
void pause_ms(u32 milliseconds);

/* processes.c: iterates over the processes of a device */
struct walk {
    const struct target *target;
    u32 lists;
    int mig;
    u32 next;
};
struct walk walk_processes(const struct target *target, u32 lists);
const struct running *next_process(struct walk *walk);

/* values.c: reading slots */
int put_text(const char *text, char *buffer, u32 room);
int fetch(const char *function, const struct target *target, int slot, u64 *value);
int fetch_u32(const char *function, const struct target *target, int slot, u32 *value);
int get_u32(const char *function, handle device, int slot, u32 *value);
int get_u64(const char *function, handle device, int slot, u64 *value);
int get_two(const char *function, handle device, const int slots[2], u32 *one, u32 *other);
int total_energy_slot(const struct device *device);
int get_text(const char *function, handle device, int text, char *buffer, u32 room);
bool given(const struct device *device, int slot, u64 *value);
bool mig_denied(const struct target *target);

#endif
