/* A job's output folders as Azure ML mounts them, at their strictest: loaded into each process of a job by LD_PRELOAD.

   A blob is written from its start to its end and appears when it is closed. So within the folders: a new file is
   written aside and gets its name at close; other nodes see it only after a delay, and what a process did not find
   stays absent for as long. A file that exists is never written again: no truncating, no append, no random write, no
   rename onto it. A rename of a folder, a link, a shared writable mapping fail. Calls fail with EIO, once for a path,
   as a seed decides. Each refusal is a line on stderr. Inputs are read-only, for root too.

   A file's writer is known by a hard link, STATE/<inode>.<node>. LANDFALL_MOUNT_* are set by mounts.py.
   The rules are in output_mount_rules.h; here are the calls of the C library that they apply to.
   Not seen: system calls that bypass the C library, and static programs. */
#include "output_mount_rules.h"

#define OPEN(name, parameters, folder, arguments)                                            \
    PUBLIC int name parameters {                                                             \
        REAL(name);                                                                          \
        mode_t mode = 0;                                                                     \
        if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
        int fd = open_mounted(folder, path, flags, mode);                                    \
        return fd != -2 ? fd : real arguments;                                               \
    }
OPEN(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(openat, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, mode))
OPEN(openat64, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, mode))
PUBLIC int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
PUBLIC int creat64(const char *path, mode_t mode) { return creat(path, mode); }

static FILE *stream(const char *path, const char *mode, int *passed) {
    int flags = strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
    if (*mode != 'r') flags |= O_CREAT | (*mode == 'a' ? O_APPEND : strchr(mode, 'x') ? O_EXCL : O_TRUNC);
    int fd = open_mounted(AT_FDCWD, path, flags | (strchr(mode, 'e') ? O_CLOEXEC : 0), 0666);
    *passed = fd == -2;
    return fd < 0 ? NULL : fdopen(fd, *mode == 'w' && strchr(mode, '+') ? "w+" : "w");
}
#define FOPEN(name)                                                                          \
    PUBLIC FILE *name(const char *restrict path, const char *restrict mode) {                \
        REAL(name);                                                                          \
        int passed;                                                                          \
        FILE *file = stream(path, mode, &passed);                                            \
        return passed ? real(path, mode) : file;                                             \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* -- closing, and descriptors that name the same file ------------------------------------------------------- */
PUBLIC int close(int fd) {
    REAL(close);
    writing_t *one = taken(fd);
    int result = real(fd), published = let_go(one);
    return result ? result : published;
}
PUBLIC int fclose(FILE *file) {
    REAL(fclose);
    writing_t *one = taken(fileno(file));
    int result = real(file), published = let_go(one);
    return result ? result : published ? EOF : 0;
}
PUBLIC int dup(int fd) { REAL(dup); int new = real(fd); also(fd, new); return new; }
static int replaced(int old, int new, int result) {
    if (result >= 0 && old != new) { let_go(taken(new)); also(old, new); }
    return result;
}
PUBLIC int dup2(int old, int new) { REAL(dup2); return replaced(old, new, real(old, new)); }
PUBLIC int dup3(int old, int new, int flags) { REAL(dup3); return replaced(old, new, real(old, new, flags)); }
#define FCNTL(name)                                                                          \
    PUBLIC int name(int fd, int command, ...) {                                              \
        REAL(name);                                                                          \
        va_list more; va_start(more, command); void *argument = va_arg(more, void *); va_end(more); \
        int result = real(fd, command, argument);                                            \
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) also(fd, result);              \
        return result;                                                                       \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* -- writing: only at the end ------------------------------------------------------------------------------- */
static int misplaced(int fd, off_t offset) {
    writing_t *one = writing(fd);
    if (!one) return 0;
    struct stat found;
    if (fstat(fd, &found) || (offset >= 0 ? offset : lseek(fd, 0, SEEK_CUR)) == found.st_size) return 0;
    return refuse(one->path, "random write", EOPNOTSUPP);
}
#define WRITE(type, name, parameters, offset, arguments) \
    PUBLIC type name parameters { REAL(name); return misplaced(fd, offset) ? -1 : real arguments; }
WRITE(ssize_t, write, (int fd, const void *from, size_t n), -1, (fd, from, n))
WRITE(ssize_t, writev, (int fd, const struct iovec *from, int n), -1, (fd, from, n))
WRITE(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), at, (fd, from, n, at))
WRITE(ssize_t, pwrite64, (int fd, const void *from, size_t n, off64_t at), at, (fd, from, n, at))
WRITE(ssize_t, pwritev, (int fd, const struct iovec *from, int n, off_t at), at, (fd, from, n, at))
WRITE(ssize_t, pwritev64, (int fd, const struct iovec *from, int n, off64_t at), at, (fd, from, n, at))
WRITE(int, ftruncate, (int fd, off_t size), size, (fd, size))
WRITE(int, ftruncate64, (int fd, off64_t size), size, (fd, size))
#define SEEK(name, type)                                                                     \
    PUBLIC int name(FILE *file, type offset, int whence) {                                   \
        REAL(name);                                                                          \
        writing_t *one = writing(fileno(file));                                              \
        if (one && !(offset == 0 && whence != SEEK_SET) && !(whence == SEEK_SET && offset == ftell(file))) \
            return refuse(one->path, "random write", EOPNOTSUPP);                            \
        return real(file, offset, whence);                                                   \
    }
SEEK(fseek, long)
SEEK(fseeko, off_t)
SEEK(fseeko64, off64_t)
#define MMAP(name, type)                                                                     \
    PUBLIC void *name(void *at, size_t n, int protection, int flags, int fd, type offset) {  \
        REAL(name);                                                                          \
        writing_t *one = flags & MAP_SHARED && protection & PROT_WRITE ? writing(fd) : NULL; \
        if (one) { refuse(one->path, "shared writable mapping", ENODEV); return MAP_FAILED; } \
        return real(at, n, protection, flags, fd, offset);                                   \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)
#define TRUNCATE(name, type)                                                                 \
    PUBLIC int name(const char *path, type size) {                                           \
        REAL(name);                                                                          \
        char room[PATH_MAX];                                                                 \
        if (changes_input(AT_FDCWD, path, "truncate")) return -1;                            \
        return mounted(AT_FDCWD, path, room) ? refuse(room, "truncate", EOPNOTSUPP) : real(path, size); \
    }
TRUNCATE(truncate, off_t)
TRUNCATE(truncate64, off64_t)

/* -- names -------------------------------------------------------------------------------------------------- */
/* 0: the real call decides. */
static int refused_rename(int from_folder, const char *from, int to_folder, const char *to) {
    char from_room[PATH_MAX], to_room[PATH_MAX];
    const char *source = mounted(from_folder, from, from_room), *target = mounted(to_folder, to, to_room);
    struct statx found;
    if (changes_input(from_folder, from, "rename") || changes_input(to_folder, to, "rename")) return -1;
    if (!source && !target) return 0;
    if (!source || !target) { errno = EXDEV; return -1; }
    if (hidden(AT_FDCWD, source) || real_stat(source, &found)) return -1;
    if (S_ISDIR(found.stx_mode)) return refuse(source, "rename of a folder", EOPNOTSUPP);
    if (!real_stat(target, &found)) return refuse(target, "rename onto a name that exists", EEXIST);
    return fails(target, "rename") ? -1 : 0;
}
PUBLIC int rename(const char *from, const char *to) {
    REAL(rename);
    return refused_rename(AT_FDCWD, from, AT_FDCWD, to) ? -1 : real(from, to);
}
PUBLIC int renameat(int a, const char *from, int b, const char *to) {
    REAL(renameat);
    return refused_rename(a, from, b, to) ? -1 : real(a, from, b, to);
}
PUBLIC int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(renameat2);
    return refused_rename(a, from, b, to) ? -1 : real(a, from, b, to, flags);
}
#define LINK(name, parameters, folder, to, arguments)                                        \
    PUBLIC int name parameters {                                                             \
        REAL(name);                                                                          \
        char room[PATH_MAX];                                                                 \
        if (changes_input(folder, to, "link")) return -1;                                    \
        return mounted(folder, to, room) ? refuse(room, "link", EPERM) : real arguments;     \
    }
LINK(link, (const char *from, const char *to), AT_FDCWD, to, (from, to))
LINK(symlink, (const char *from, const char *to), AT_FDCWD, to, (from, to))
LINK(linkat, (int a, const char *from, int b, const char *to, int flags), b, to, (a, from, b, to, flags))
LINK(symlinkat, (const char *from, int b, const char *to), b, to, (from, b, to))

static void unmark(int folder, const char *name) {
    static __typeof__(&unlink) drop; if (!drop) drop = (__typeof__(&unlink))dlsym(RTLD_NEXT, "unlink");
    char room[PATH_MAX], mark[PATH_MAX];
    const char *path = mounted(folder, name, room);
    struct statx found;
    if (path && !real_stat(path, &found)) { marker(mark, found.stx_ino, node); drop(mark); }
}
/* The mark goes first: without its file, nobody would remove it. */
PUBLIC int unlink(const char *path) {
    REAL(unlink);
    if (changes_input(AT_FDCWD, path, "unlink") || hidden(AT_FDCWD, path)) return -1;
    unmark(AT_FDCWD, path);
    return real(path);
}
PUBLIC int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    if (changes_input(folder, path, "unlink") || hidden(folder, path)) return -1;
    unmark(folder, path);
    return real(folder, path, flags);
}
PUBLIC int remove(const char *path) {
    struct statx found;
    if (!real_stat(path, &found) && S_ISDIR(found.stx_mode)) return rmdir(path);
    return unlink(path);
}

#define FOLDER(name, parameters, folder, arguments) \
    PUBLIC int name parameters { REAL(name); return changes_input(folder, path, #name) ? -1 : real arguments; }
FOLDER(mkdir, (const char *path, mode_t mode), AT_FDCWD, (path, mode))
FOLDER(mkdirat, (int at, const char *path, mode_t mode), at, (at, path, mode))
FOLDER(rmdir, (const char *path), AT_FDCWD, (path))

/* -- looking ------------------------------------------------------------------------------------------------ */
#define LOOK(name, parameters, folder, arguments) \
    PUBLIC int name parameters { REAL(name); return hidden(folder, path) ? -1 : real arguments; }
LOOK(stat, (const char *restrict path, struct stat *restrict found), AT_FDCWD, (path, found))
LOOK(stat64, (const char *restrict path, struct stat64 *restrict found), AT_FDCWD, (path, found))
LOOK(lstat, (const char *restrict path, struct stat *restrict found), AT_FDCWD, (path, found))
LOOK(lstat64, (const char *restrict path, struct stat64 *restrict found), AT_FDCWD, (path, found))
LOOK(fstatat, (int at, const char *restrict path, struct stat *restrict found, int flags), at, (at, path, found, flags))
LOOK(fstatat64, (int at, const char *restrict path, struct stat64 *restrict found, int flags), at, (at, path, found, flags))
LOOK(statx, (int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict found), at, (at, path, flags, mask, found))
LOOK(__xstat, (int version, const char *path, struct stat *found), AT_FDCWD, (version, path, found))
LOOK(__xstat64, (int version, const char *path, struct stat64 *found), AT_FDCWD, (version, path, found))
LOOK(__lxstat, (int version, const char *path, struct stat *found), AT_FDCWD, (version, path, found))
LOOK(__lxstat64, (int version, const char *path, struct stat64 *found), AT_FDCWD, (version, path, found))
LOOK(__fxstatat, (int version, int at, const char *path, struct stat *found, int flags), at, (version, at, path, found, flags))
LOOK(__fxstatat64, (int version, int at, const char *path, struct stat64 *found, int flags), at, (version, at, path, found, flags))
LOOK(access, (const char *path, int how), AT_FDCWD, (path, how))
LOOK(faccessat, (int at, const char *path, int how, int flags), at, (at, path, how, flags))

#define LIST(name, type)                                                                     \
    PUBLIC type *name(DIR *folder) {                                                         \
        REAL(name);                                                                          \
        char room[PATH_MAX];                                                                 \
        for (;;) {                                                                           \
            type *entry = real(folder);                                                      \
            if (!entry) return NULL;                                                         \
            const char *path = mounted(dirfd(folder), entry->d_name, room);                  \
            if (!path || visible(path, 0)) return entry;                                     \
        }                                                                                    \
    }
LIST(readdir, struct dirent)
LIST(readdir64, struct dirent64)

/* -- the life of a process ---------------------------------------------------------------------------------- */
static double number(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text && *text ? atof(text) : otherwise;
}

/* Take over files that were opened before this program replaced another one: a shell's redirection. */
static void adopt(void) {
    char link[64], to[PATH_MAX + 8];
    for (int fd = 0; fd < 64; fd++) {
        writing_t *one = calloc(1, sizeof *one);
        if (!one) return;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, one->staged, PATH_MAX - 1);
        snprintf(to, sizeof to, "%s.to", one->staged);
        ssize_t named = length > 0 && !strncmp(one->staged, state, strlen(state)) ? readlink(to, one->path, PATH_MAX - 1) : 0;
        one->owner = getpid();
        atomic_store(&one->uses, 1);
        if (named > 0) atomic_store(&writings[fd], one); else free(one);
    }
}

/* Fill in the folders that a variable lists; return their number. */
static int listed(root_t *which, const char *text) {
    char all[64 * 256], *rest = NULL;
    int found = 0;
    snprintf(all, sizeof all, "%s", text ? text : "");
    for (char *one = strtok_r(all, ":", &rest); one && found < 64; one = strtok_r(NULL, ":", &rest)) {
        snprintf(which[found].text, PATH_MAX, "%s", one);
        which[found].length = strlen(one);
        found++;
    }
    return found;
}

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("LANDFALL_MOUNT_ROOTS"), *where = getenv("LANDFALL_MOUNT_STATE");
    if (!text || !where) return;
    snprintf(state, sizeof state, "%s", where);
    delay_s = number("LANDFALL_MOUNT_DELAY_S", 0);
    cached_s = number("LANDFALL_MOUNT_CACHED_S", 0);
    opened_at = number("LANDFALL_MOUNT_OPENED_AT", 0);
    seed = number("LANDFALL_MOUNT_SEED", 0);
    error_permille = number("LANDFALL_MOUNT_ERRORS_PERMILLE", 0);
    always_fail = number("LANDFALL_MOUNT_ALWAYS_FAILS", 0);
    int for_each = number("LANDFALL_MOUNT_RANKS_PER_NODE", 1);
    node = (int)number("LANDFALL_MOUNT_RANK", number("OMPI_COMM_WORLD_RANK", 0)) / (for_each > 0 ? for_each : 1);
    adopt();
    num_inputs = listed(inputs, getenv("LANDFALL_MOUNT_INPUTS"));
    num_roots = listed(roots, text);
}

/* A process that is killed leaves nothing behind; one that ends closes its files. */
__attribute__((destructor)) static void end(void) {
    if (!num_roots) return;
    fflush(NULL);
    for (int fd = 0; fd < MAX_FDS; fd++) let_go(taken(fd));
}
