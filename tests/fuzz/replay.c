/* Feeds every file of the given folders to a fuzz target once. An empty corpus is a failure. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/err.h"
#include "tests/fuzz/fuzz.h"

enum { PATH_BYTES = 4096, INPUT_MAX = 64 * 1024 * 1024 };

static void close_file(FILE **file_p)
{
    if (*file_p)
        fclose(*file_p);
}

static void free_bytes(uint8_t **bytes_p)
{
    free(*bytes_p);
}

static bool replay_file(const char *path)
{
    SB_OWN(close_file) FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return false;
    const long size = ftell(file);
    if (size < 0 || size > INPUT_MAX || fseek(file, 0, SEEK_SET) != 0)
        return false;
    SB_OWN(free_bytes) uint8_t *bytes = malloc((size_t) size + 1);
    if (!bytes || fread(bytes, 1, (size_t) size, file) != (size_t) size)
        return false;
    LLVMFuzzerTestOneInput(bytes, (size_t) size);
    return true;
}

/* The number of inputs, or -1. */
static int replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        char path[PATH_BYTES];
        const int len = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (len < 0 || (size_t) len >= sizeof path || !replay_file(path)) {
            fprintf(stderr, "cannot read %s/%s\n", folder, entry->d_name);
            count = -1;
            break;
        }
        count++;
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        const int count = replay_folder(argv[i]);
        if (count < 0)
            return EXIT_FAILURE;
        total += count;
    }
    printf("%d inputs\n", total);
    return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
