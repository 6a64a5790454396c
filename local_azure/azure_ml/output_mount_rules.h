/* What a mounted output allows and shows, and how a file is written aside until it is closed: see output_mount.c. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define MAX_FDS 65536
#define SEEN 1024
#define MOST_RETRIES 1

typedef struct { char staged[PATH_MAX], path[PATH_MAX]; pid_t owner; atomic_int uses; } writing_t;
static _Atomic(writing_t *) writings[MAX_FDS];
typedef struct { char text[PATH_MAX]; size_t length; } root_t;
static root_t roots[64], inputs[64];
static int num_roots, num_inputs, node, error_permille, always_fail;
static double delay_s, cached_s, opened_at;
static unsigned long seed;
static char state[PATH_MAX / 2];
static struct { atomic_ulong path; _Atomic double until; } absent[SEEN];
static struct { atomic_ulong path; atomic_int tries; } tried[SEEN];
static atomic_int sequence;

extern int __xstat(int, const char *, struct stat *), __lxstat(int, const char *, struct stat *);
extern int __xstat64(int, const char *, struct stat64 *), __lxstat64(int, const char *, struct stat64 *);
extern int __fxstatat(int, int, const char *, struct stat *, int);
extern int __fxstatat64(int, int, const char *, struct stat64 *, int);

static int real_stat(const char *path, struct statx *found) {
    REAL(statx);
    return real(AT_FDCWD, path, 0, STATX_BASIC_STATS, found);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static unsigned long digest(const char *text) {
    unsigned long hash = 1469598103934665603UL ^ seed;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211UL;
    return hash ^ hash >> 29;
}

/* The absolute path of a name within one of these folders, otherwise NULL. */
static const char *within(const root_t *which, int number, int folder, const char *name, char *room) {
    if (!number || !name || !*name) return NULL;
    if (*name != '/') {
        if (folder == AT_FDCWD) {
            if (!getcwd(room, PATH_MAX)) return NULL;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t length = readlink(link, room, PATH_MAX - 1);
            if (length <= 0) return NULL;
            room[length] = 0;
        }
        size_t length = strlen(room);
        snprintf(room + length, PATH_MAX - length, "/%s", strncmp(name, "./", 2) ? name : name + 2);
    } else {
        snprintf(room, PATH_MAX, "%s", name);
    }
    for (int i = 0; i < number; i++)
        if (!strncmp(room, which[i].text, which[i].length) && (!room[which[i].length] || room[which[i].length] == '/'))
            return room;
    return NULL;
}

static const char *mounted(int folder, const char *name, char *room) {
    return within(roots, num_roots, folder, name, room);
}

/* The part of a path below its mount: the same whatever the folder that holds the run. */
static const char *below(const char *path) {
    for (int i = 0; i < num_roots; i++)
        if (!strncmp(path, roots[i].text, roots[i].length)) return strrchr(roots[i].text, '/') - roots[i].text + path;
    return path;
}

static int refuse(const char *path, const char *what, int error) {
    dprintf(2, "output mount: %s: %s: refused, as a mounted blob refuses it\n", path, what);
    errno = error;
    return -1;
}

/* Whether a call would change an input, which is mounted read-only: for root too, whom no mode of a file keeps out. */
static int changes_input(int folder, const char *name, const char *what) {
    char room[PATH_MAX];
    const char *path = within(inputs, num_inputs, folder, name, room);
    if (!path) return 0;
    dprintf(2, "input mount: %s: %s: refused, since inputs are read-only\n", path, what);
    errno = EROFS;
    return 1;
}

/* Whether this call fails: the first one for a path only, unless every call is to fail. */
static int fails(const char *path, const char *what) {
    if (!error_permille && !always_fail) return 0;
    unsigned long key = digest(below(path));
    if (!always_fail) {
        if (key / 7 % 1000 >= (unsigned)error_permille) return 0;
        int i = key % SEEN;
        if (atomic_load(&tried[i].path) != key) { atomic_store(&tried[i].path, key); atomic_store(&tried[i].tries, 0); }
        if (atomic_fetch_add(&tried[i].tries, 1) >= MOST_RETRIES) return 0;
    }
    dprintf(2, "output mount: %s: %s: input/output error of the emulated mount\n", path, what);
    errno = EIO;
    return 1;
}

static void marker(char *room, unsigned long inode, int of_node) {
    snprintf(room, PATH_MAX, "%s/%lu.%d", state, inode, of_node);
}

/* Whether this node sees a path that may exist: 0 hides it, and it stays hidden for a while. */
static int visible(const char *path, int remember) {
    REAL(access);
    struct statx found;
    unsigned long key = digest(path);
    int i = key % SEEN;
    int saved = errno;
    int seen = real_stat(path, &found) == 0;
    if (seen && S_ISREG(found.stx_mode)) {
        char mark[PATH_MAX];
        marker(mark, found.stx_ino, node);
        double changed = found.stx_ctime.tv_sec + found.stx_ctime.tv_nsec / 1e9;
        int other = real(mark, F_OK) != 0 && changed > opened_at;
        seen = !other || now_s() >= changed + delay_s;
        if (other && seen && atomic_load(&absent[i].path) == key) seen = now_s() >= atomic_load(&absent[i].until);
    }
    if (!seen && remember && !(atomic_load(&absent[i].path) == key && now_s() < atomic_load(&absent[i].until))) {
        atomic_store(&absent[i].path, key);
        atomic_store(&absent[i].until, now_s() + cached_s);
    }
    errno = saved;
    return seen;
}

static int hidden(int folder, const char *name) {
    char room[PATH_MAX];
    const char *path = mounted(folder, name, room);
    if (!path || visible(path, 1)) return 0;
    errno = ENOENT;
    return 1;
}

static writing_t *writing(int fd) { return fd >= 0 && fd < MAX_FDS ? atomic_load(&writings[fd]) : NULL; }

static int publish(writing_t *one) {
    REAL(link);
    static __typeof__(&unlink) drop; if (!drop) drop = (__typeof__(&unlink))dlsym(RTLD_NEXT, "unlink");
    static __typeof__(&rename) move; if (!move) move = (__typeof__(&rename))dlsym(RTLD_NEXT, "rename");
    char mark[PATH_MAX], note[PATH_MAX + 8];
    struct statx staged, there;
    snprintf(note, sizeof note, "%s.to", one->staged);
    drop(note);
    if (real_stat(one->staged, &staged)) return 0; /* another process that had it open has closed it */
    if (fails(one->path, "close")) { drop(one->staged); return -1; }
    marker(mark, staged.stx_ino, node); /* first, so that this node never misses its own file */
    if (move(one->staged, mark)) return -1;
    if (!real(mark, one->path)) return 0;
    int error = errno;
    if (error == EEXIST && !real_stat(one->path, &there) && there.stx_ino == staged.stx_ino) return 0;
    drop(mark);
    return refuse(one->path, "close of a file whose name was taken meanwhile", error == EEXIST ? EIO : error);
}

/* Take a descriptor's file from the table, before the descriptor is closed: its number may then be another file's. */
static writing_t *taken(int fd) { return fd >= 0 && fd < MAX_FDS ? atomic_exchange(&writings[fd], NULL) : NULL; }

/* Let go of a file; with the last descriptor of its owner it gets its name. */
static int let_go(writing_t *one) {
    if (!one || atomic_fetch_sub(&one->uses, 1) > 1) return 0;
    int result = one->owner == getpid() ? publish(one) : 0;
    free(one);
    return result;
}

static void also(int old, int new) {
    writing_t *one = writing(old);
    if (new >= 0 && new < MAX_FDS && one) { atomic_fetch_add(&one->uses, 1); atomic_store(&writings[new], one); }
}

static int open_new(const char *path, int flags, mode_t mode) {
    static __typeof__(&open) real; if (!real) real = (__typeof__(&open))dlsym(RTLD_NEXT, "open");
    static __typeof__(&symlink) note; if (!note) note = (__typeof__(&symlink))dlsym(RTLD_NEXT, "symlink");
    char parent[PATH_MAX], *slash, to[PATH_MAX + 8];
    struct statx found;
    snprintf(parent, sizeof parent, "%s", path);
    if ((slash = strrchr(parent, '/'))) *slash = 0;
    if (real_stat(parent, &found)) return -1;
    if (!S_ISDIR(found.stx_mode)) { errno = ENOTDIR; return -1; }
    writing_t *one = calloc(1, sizeof *one);
    if (!one) return -1;
    one->owner = getpid();
    atomic_store(&one->uses, 1);
    snprintf(one->path, sizeof one->path, "%s", path);
    snprintf(one->staged, sizeof one->staged, "%s/%d.%d.writing", state, one->owner, atomic_fetch_add(&sequence, 1));
    snprintf(to, sizeof to, "%s.to", one->staged);
    note(path, to);
    int fd = real(one->staged, flags | O_CREAT | O_EXCL, mode);
    if (fd < 0 || fd >= MAX_FDS) { free(one); return fd; }
    atomic_store(&writings[fd], one);
    return fd;
}

/* -2: the real call decides; otherwise the result. */
static int open_mounted(int folder, const char *name, int flags, mode_t mode) {
    char room[PATH_MAX];
    const char *path = mounted(folder, name, room);
    struct statx found;
    int writes = (flags & O_ACCMODE) != O_RDONLY || flags & (O_TRUNC | O_APPEND);
    if ((writes || flags & O_CREAT) && changes_input(folder, name, "open for writing")) return -1;
    if (!path || flags & O_DIRECTORY) return -2;
    int exists = real_stat(path, &found) == 0;
    if (exists && S_ISDIR(found.stx_mode)) return -2;
    if (!writes && !(flags & O_CREAT && !exists)) {
        if (!visible(path, 1)) { errno = ENOENT; return -1; }
        return fails(path, "open") ? -1 : -2;
    }
    if (flags & O_APPEND) return refuse(path, "append", EOPNOTSUPP);
    if (exists && flags & O_EXCL) { errno = EEXIST; return -1; }
    if (exists) return refuse(path, "writing a file that exists", flags & O_TRUNC ? EEXIST : EOPNOTSUPP);
    if (!(flags & O_CREAT)) { errno = ENOENT; return -1; }
    return fails(path, "create") ? -1 : open_new(path, flags, mode);
}
