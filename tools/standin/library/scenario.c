/* The player: reads the scenario file frame by frame as time passes, and again when it is replaced. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "standin.h"

#define STAT_INTERVAL 0.003 /* seconds: a replaced file is seen this soon, and calls stay cheap */

static FILE *file;
static char *path;
static struct stat identity;
static int line_number;
static double zero, zero_wall; /* time 0 on the monotonic and on the wall clock */
static double next_look;

static double clock_seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double scenario_now(void) { return clock_seconds(CLOCK_MONOTONIC) - zero; }
const char *scenario_path(void) { return path; }

u64 wall_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

u64 scenario_zero_us(void) { return (u64)(zero_wall * 1e6); }

/* Time 0 is this moment of the wall clock. */
void scenario_set_zero(double wall)
{
    zero_wall = wall;
    zero = clock_seconds(CLOCK_MONOTONIC) - (clock_seconds(CLOCK_REALTIME) - wall);
}

/* Reports a malformed line, and marks the whole file as broken. */
void scenario_mistake(const char *what, const char *line)
{
    fprintf(stderr, "driver stand-in: %s:%d: %s: %s\n", path, line_number, what, line);
    world.broken = true;
}

/* Plays lines up to the next `frame`, and stores its time. */
static void play_frame(void)
{
    static char *line;
    static size_t room;
    ssize_t length;
    while (!world.broken && (length = getline(&line, &room, file)) > 0) {
        line_number++;
        while (length && isspace((unsigned char)line[length - 1]))
            line[--length] = '\0';
        char *key = line + strspn(line, " \t");
        if (!*key || *key == '#')
            continue;
        char *value = key + strcspn(key, " \t");
        if (*value) {
            *value++ = '\0';
            value += strspn(value, " \t");
        }
        if (!*value)
            scenario_mistake("a key without a value", key);
        else if (strcmp(key, "frame") == 0) {
            world.next_frame = strtod(value, NULL);
            return;
        } else
            world_play_line(key, value);
    }
    world.next_frame = INFINITY;
}

static bool load(void)
{
    FILE *opened = fopen(path, "re");
    if (!opened)
        return false;
    if (file)
        fclose(file);
    file = opened;
    fstat(fileno(file), &identity);
    session_over(); /* records that the driver was gone by the old file's faults */
    world_clear(false);
    line_number = 0;
    play_frame();
    return true;
}

static bool replaced(void)
{
    struct stat found;
    return stat(path, &found) == 0 && (found.st_ino != identity.st_ino || found.st_size != identity.st_size ||
                                       found.st_mtim.tv_sec != identity.st_mtim.tv_sec ||
                                       found.st_mtim.tv_nsec != identity.st_mtim.tv_nsec);
}

/* The file has changed: read it again at the next call. */
void scenario_look_again(void) { next_look = 0; }

/* Advances the state to the current time. */
void scenario_refresh(void)
{
    if (!file)
        return;
    double now = clock_seconds(CLOCK_MONOTONIC);
    if (now >= next_look) {
        next_look = now + STAT_INTERVAL;
        if (replaced())
            load();
    }
    bool played = false;
    while (!world.broken && world.next_frame <= now - zero) {
        play_frame();
        played = true;
    }
    if (!played)
        return;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (world.gpus[gpu].known)
            events_publish(gpu);
}

/* Plays this file from now on; false when it does not exist. The same file continues. */
bool scenario_choose(const char *chosen)
{
    struct stat found;
    if (!chosen || stat(chosen, &found) != 0)
        return false;
    if (!path || strcmp(path, chosen) != 0) {
        free(path);
        path = strdup(chosen);
        world_clear(true);
        scenario_set_zero(clock_seconds(CLOCK_REALTIME));
        if (!load())
            return false;
    }
    scenario_refresh();
    return true;
}
