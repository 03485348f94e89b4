/* The state of the GPUs, and the lines of a scenario that change it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "standin.h"

#define MAX_SAMPLES 16384 /* of one GPU; beyond it the older half is dropped */

struct world world;

static int current_gpu, current_mig; /* section of the lines being read; -1: none yet */

/* A growing table: room for one more entry of the given size, zeroed. */
static void *append(void **entries, u32 *count, u32 *room, size_t size)
{
    if (*count == *room) {
        *room = *room ? *room * 2 : 16;
        *entries = realloc(*entries, *room * size);
        if (!*entries)
            abort();
    }
    void *entry = (char *)*entries + (size_t)(*count)++ * size;
    return memset(entry, 0, size);
}
#define APPEND(table) \
    append((void **)&(table)->entries, &(table)->count, &(table)->room, sizeof *(table)->entries)

static void clear_processes(struct device *device)
{
    for (u32 i = 0; i < device->processes.count; i++)
        free(device->processes.entries[i].name);
    device->processes.count = 0;
}

static void clear_device(struct device *device)
{
    clear_processes(device);
    free(device->processes.entries);
    for (int i = 0; i < TEXTS; i++)
        free(device->text[i]);
    memset(device, 0, sizeof *device);
}

static void clear_mig(struct gpu *gpu, int index)
{
    struct device *mig = gpu->migs[index];
    if (mig) {
        clear_device(mig);
        free(mig);
        gpu->migs[index] = NULL;
    }
}

/* Resets to the state before the first line. Delivered XIDs are kept unless `forget_xids`. */
void world_clear(bool forget_xids)
{
    for (int i = 0; i < MAX_GPUS; i++) {
        struct gpu *gpu = &world.gpus[i];
        if (!gpu->known)
            continue;
        for (int mig = 0; mig < MAX_MIGS; mig++)
            clear_mig(gpu, mig);
        clear_device(&gpu->card);
        gpu->samples.count = gpu->accounts.count = 0;
        for (u32 xid = 0; xid < gpu->xid_count; xid++)
            gpu->xids[xid].come = 0;
        if (forget_xids)
            gpu->xid_count = 0;
        gpu->known = false;
    }
    world.fault_count = 0;
    world.broken = false;
    world.driver_version[0] = world.nvml_version[0] = '\0';
    world.cuda_version = 0;
    world.no_mig_monitor = false;
    current_gpu = current_mig = -1;
}

static struct device *current_device(void)
{
    if (current_gpu < 0)
        return NULL;
    struct gpu *gpu = &world.gpus[current_gpu];
    return current_mig < 0 ? &gpu->card : gpu->migs[current_mig];
}

static bool parse_u64(const char *word, u64 *value)
{
    char *end;
    *value = *word == '-' ? (u64)strtoll(word, &end, 10) : strtoull(word, &end, 0);
    return *word && !*end;
}

static bool parse_number(int slot, const char *word, u64 *value)
{
    if (slot < GPM_GRAPHICS || slot > GPM_PCIE_RX)
        return parse_u64(word, value);
    char *end;
    double real = strtod(word, &end);
    memcpy(value, &real, sizeof real);
    return *word && !*end;
}

static void play_gpu(const char *word)
{
    char *end;
    long index = strtol(word, &end, 10);
    if (*end || index < 0 || index >= MAX_GPUS) {
        scenario_mistake("no such place for a GPU", word);
        return;
    }
    current_gpu = (int)index;
    current_mig = -1;
    world.gpus[index].known = true;
}

static void play_mig(const char *words)
{
    int index, length = 0;
    if (current_gpu < 0 || sscanf(words, "%d%n", &index, &length) != 1 || index < 0 || index >= MAX_MIGS) {
        scenario_mistake("no such place for a MIG device", words);
        return;
    }
    struct gpu *gpu = &world.gpus[current_gpu];
    if (strcmp(words + length, " -") == 0) {
        clear_mig(gpu, index);
        current_mig = -1;
        return;
    }
    if (!gpu->migs[index]) {
        gpu->migs[index] = calloc(1, sizeof *gpu->migs[index]);
        if (!gpu->migs[index])
            abort();
    }
    current_mig = index;
}

static u32 parse_lists(const char *word)
{
    u32 lists = 0;
    lists |= strstr(word, "compute") ? LIST_COMPUTE : 0;
    lists |= strstr(word, "graphics") ? LIST_GRAPHICS : 0;
    lists |= strstr(word, "mps") ? LIST_MPS : 0;
    return lists;
}

static u32 instance_id(const char *word)
{
    return strcmp(word, "-") == 0 ? NO_INSTANCE : (u32)strtoul(word, NULL, 10);
}

static void play_process(const char *words)
{
    struct device *device = current_device();
    u32 pid;
    int length = 0;
    char lists[64], memory[32], gpu_instance[16], compute_instance[16];
    if (!device ||
        sscanf(words, "%u %63s %31s %15s %15s%n", &pid, lists, memory, gpu_instance, compute_instance,
               &length) != 5 ||
        !parse_lists(lists)) {
        scenario_mistake("not a process", words);
        return;
    }
    struct running *process = APPEND(&device->processes);
    process->pid = pid;
    process->lists = parse_lists(lists);
    process->gpu_instance = instance_id(gpu_instance);
    process->compute_instance = instance_id(compute_instance);
    if (strcmp(memory, "-") == 0)
        process->memory = NOT_AVAILABLE;
    else if (!parse_u64(memory, &process->memory))
        scenario_mistake("not a number of bytes", words);
    process->name = words[length] ? strdup(words + length + 1) : NULL;
}

static void play_sample(const char *words)
{
    struct process_sample sample = {.pid = NO_PID};
    char time[32];
    bool idle = sscanf(words, "- %31s", time) == 1;
    if (current_gpu < 0 ||
        (!idle && sscanf(words, "%u %31s %u %u %u %u", &sample.pid, time, &sample.sm, &sample.memory,
                         &sample.encoder, &sample.decoder) != 6) ||
        !parse_u64(time + (*time == '+'), &sample.time_us)) {
        scenario_mistake("not a sample", words);
        return;
    }
    if (*time == '+' || *time == '-')
        sample.time_us += scenario_zero_us();
    struct sample_table *samples = &world.gpus[current_gpu].samples;
    if (samples->count == MAX_SAMPLES) {
        samples->count /= 2;
        memmove(samples->entries, samples->entries + samples->count, samples->count * sizeof sample);
    }
    *(struct process_sample *)APPEND(samples) = sample;
    world.gpus[current_gpu].card.given[SAMPLES] = true;
}

static void forget_account(struct account_table *accounts, u32 pid, bool running)
{
    for (u32 i = 0; i < accounts->count; i++)
        if (accounts->entries[i].pid == pid && !accounts->entries[i].stats.running == !running) {
            accounts->count--;
            memmove(accounts->entries + i, accounts->entries + i + 1,
                    (accounts->count - i) * sizeof *accounts->entries);
            return;
        }
}

/* A running process has an entry beside an ended one of the same pid; its end replaces both. */
static void play_account(const char *words)
{
    struct account account = {0};
    struct accounting *stats = &account.stats;
    char start[32];
    if (current_gpu < 0 ||
        sscanf(words, "%u %u %u %llu %llu %31s %u", &account.pid, &stats->gpu_percent, &stats->memory_percent,
               &stats->max_memory, &stats->time_ms, start, &stats->running) != 7 ||
        !parse_u64(start + (*start == '+'), &stats->start_us)) {
        scenario_mistake("not an accounting entry", words);
        return;
    }
    if (*start == '+' || *start == '-')
        stats->start_us += scenario_zero_us();
    struct account_table *accounts = &world.gpus[current_gpu].accounts;
    forget_account(accounts, account.pid, true);
    if (!stats->running)
        forget_account(accounts, account.pid, false);
    *(struct account *)APPEND(accounts) = account;
}

static void play_xid(const char *words)
{
    u32 code;
    char count[32];
    u64 come = 0;
    if (current_gpu < 0 || sscanf(words, "%u %31s", &code, count) != 2 ||
        (strcmp(count, "-") != 0 && !parse_u64(count, &come))) {
        scenario_mistake("not a count of an XID", words);
        return;
    }
    struct gpu *gpu = &world.gpus[current_gpu];
    u32 i = 0;
    while (i < gpu->xid_count && gpu->xids[i].code != code)
        i++;
    if (i == MAX_XIDS) {
        scenario_mistake("too many different XIDs", words);
        return;
    }
    if (i == gpu->xid_count)
        gpu->xids[gpu->xid_count++] = (struct xid){.code = code};
    gpu->xids[i].come = come;
    if (gpu->xids[i].told > come)
        gpu->xids[i].told = come;
}

static void play_key(const char *key, const char *value)
{
    struct device *device = current_device();
    int text = key_text(key), slot = text < 0 ? key_slot(key) : -1;
    bool unsupported = strcmp(value, "-") == 0;
    if (!device || (text < 0 && slot < 0)) {
        scenario_mistake(device ? "unknown key" : "before any gpu", key);
        return;
    }
    if (text >= 0) {
        free(device->text[text]);
        device->text[text] = unsupported ? NULL : strdup(value);
        return;
    }
    if (slot == PROCESSES)
        clear_processes(device);
    device->given[slot] = !unsupported;
    if (!unsupported && !parse_number(slot, value, &device->number[slot]))
        scenario_mistake("not a number", value);
}

/* Applies a line with this key and value (except `frame`, which scenario.c handles). */
void world_play_line(const char *key, char *value)
{
    if (strcmp(key, "gpu") == 0)
        play_gpu(value);
    else if (strcmp(key, "mig") == 0)
        play_mig(value);
    else if (strcmp(key, "process") == 0)
        play_process(value);
    else if (strcmp(key, "sample") == 0)
        play_sample(value);
    else if (strcmp(key, "xid") == 0)
        play_xid(value);
    else if (strcmp(key, "account") == 0)
        play_account(value);
    else if (strcmp(key, "start") == 0)
        scenario_set_zero(strtod(value, NULL));
    else if (strcmp(key, "driver_version") == 0)
        snprintf(world.driver_version, sizeof world.driver_version, "%s", value);
    else if (strcmp(key, "nvml_version") == 0)
        snprintf(world.nvml_version, sizeof world.nvml_version, "%s", value);
    else if (strcmp(key, "cuda_version") == 0)
        world.cuda_version = strtoull(value, NULL, 10);
    else if (strcmp(key, "mig_monitor") == 0)
        world.no_mig_monitor = strcmp(value, "0") == 0;
    else if (strcmp(key, "fault") == 0) {
        if (world.fault_count == MAX_FAULTS || !fault_parse(value, &world.faults[world.fault_count]))
            scenario_mistake("not a fault", key);
        else
            world.fault_count++;
    } else
        play_key(key, value);
}
