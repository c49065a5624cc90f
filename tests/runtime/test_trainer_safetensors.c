/* safetensors: what is written reads back; every kind of damage is refused with its own message. */
#include "runtime/trainer/safetensors.h"
#include "tests/runtime/scratch.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <unistd.h>

/* Writes length + header + data bytes of zeros and opens it; the failure's text, NULL when it
 * opens. */
static char *open_text(const char *header, size_t length_said, size_t data_bytes)
{
    char *folder = scratch_new(), *path = scratch_path(folder, "t.safetensors");
    size_t length = strlen(header);
    unsigned char *bytes = calloc(8 + length + data_bytes, 1);
    uint64_t said = length_said == SIZE_MAX ? length : length_said;
    memcpy(bytes, &said, 8);
    memcpy(bytes + 8, header, length);
    scratch_write(path, bytes, 8 + length + data_bytes);
    FgFail fail = {0};
    FgSafetensors *file = fg_safetensors_open(path, &fail);
    fg_safetensors_close(file);
    free(bytes);
    scratch_remove(folder);
    free(path);
    free(folder);
    return fail.text;
}

static void refuse(int *failures, const char *header, size_t data_bytes, const char *part)
{
    char *text = open_text(header, SIZE_MAX, data_bytes);
    if (!text || !strstr(text, part)) {
        printf("%s\n  gives: %s\n  not:   %s\n", header, text ? text : "(it opens)", part);
        ++*failures;
    }
    free(text);
}

#define F32_2 "\"dtype\":\"F32\",\"shape\":[2],"

static void bad_entries(int *failures)
{
    refuse(failures, "{\"a\\u0000b\":{" F32_2 "\"data_offsets\":[0,8]}}", 8,
           "header: \\u0000 has no place in a name or text (byte ");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[0,8]}}", 7, "outside the file's 7 bytes");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[0,8]}}", 9, "1 bytes after the last");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[0,7]}}", 7, "its shape needs 8");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[8,0]}}", 8, "outside");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[-8,0]}}", 8, "outside");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[0,8,8]}}", 8, "not [begin, end]");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[0.0,8.0]}}", 8, "not [begin, end]");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[1,9]}}", 9, "a hole or an overlap");
    refuse(failures,
           "{\"a\":{" F32_2 "\"data_offsets\":[0,8]},\"b\":{" F32_2 "\"data_offsets\":[4,12]}}", 12,
           "'b': a hole or an overlap");
    refuse(failures, "{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
           "unknown dtype 'F31'");
    refuse(failures, "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
           "no size");
    refuse(failures, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,8]}}", 8,
           "no size");
    refuse(failures,
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
           0, "overflows");
    refuse(failures,
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
           "no number of bytes");
    refuse(failures, "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
           "no number of bytes");
    refuse(failures, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "keys must be");
    refuse(failures, "{\"a\":{" F32_2 "\"data_offsets\":[0,8],\"x\":1}}", 8, "keys must be");
    refuse(failures, "{\"a\":3}", 0, "keys must be");
}

static void bad_headers(int *failures)
{
    refuse(failures, " {}", 0, "does not start with '{'");
    refuse(failures, "", 4, "does not start with '{'");
    refuse(failures, "{\"a\":", 0, "header:");
    refuse(failures, "{} {}", 0, "header:");
    refuse(failures,
           "{\"a\":{" F32_2 "\"data_offsets\":[0,8]},\"a\":{" F32_2 "\"data_offsets\":[8,16]}}", 16,
           "duplicate");
    refuse(failures, "{\"__metadata__\":{\"format\":1}}", 0, "'format' is not a string");
    refuse(failures, "{\"__metadata__\":[]}", 0, "not an object");
    char *text = open_text("{}", 3, 0);
    CHECK(text && strstr(text, "a header of 3 bytes does not fit"));
    free(text);
    text = open_text("{}", 100000001, 0);
    CHECK(text && strstr(text, "does not fit"));
    free(text);
    text = open_text("{}", SIZE_MAX - 3, 0);
    CHECK(text && strstr(text, "does not fit"));
    free(text);
}

static void bad_files(int *failures)
{
    char *folder = scratch_new(), *path = scratch_path(folder, "short");
    FgFail fail = {0};
    CHECK(scratch_write(path, "1234567", 7));
    CHECK(!fg_safetensors_open(path, &fail));
    CHECK(fail.text && strstr(fail.text, "too short"));
    fg_fail_clear(&fail);
    CHECK(scratch_write(path, "", 0));
    CHECK(!fg_safetensors_open(path, &fail));
    CHECK(fail.text && strstr(fail.text, "too short"));
    fg_fail_clear(&fail);
    CHECK(!fg_safetensors_open(folder, &fail));
    CHECK(fail.text && strstr(fail.text, "not a regular file"));
    fg_fail_clear(&fail);
    free(path);
    path = scratch_path(folder, "absent");
    CHECK(!fg_safetensors_open(path, &fail));
    CHECK(fail.text && strstr(fail.text, "cannot be opened"));
    fg_fail_clear(&fail);
    scratch_remove(folder);
    free(path);
    free(folder);
}

static void odd_but_good(int *failures)
{
    CHECK(!open_text("{}", SIZE_MAX, 0));
    CHECK(!open_text("{}      ", SIZE_MAX, 0));
    CHECK(!open_text("{\"__metadata__\":{\"format\":\"pt\"}}", SIZE_MAX, 0));
    CHECK(
        !open_text("{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", SIZE_MAX, 8));
    CHECK(!open_text("{\"e\":{\"dtype\":\"I8\",\"shape\":[3,0],\"data_offsets\":[4,4]},"
                     "\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                     SIZE_MAX, 4));
    CHECK(!open_text("{\"b\":{" F32_2 "\"data_offsets\":[8,16]},\"a\":{" F32_2
                     "\"data_offsets\":[0,8]}}",
                     SIZE_MAX, 16));
    CHECK(
        !open_text("{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", SIZE_MAX, 2));
}

static const void *give(void *cx, uint32_t index, FgFail *fail)
{
    (void)fail;
    return ((const void *const *)cx)[index];
}

static void round_trip(int *failures)
{
    const int64_t square[] = {2, 2}, three[] = {3};
    const float f32[] = {1.5f, -2, 3e-20f, 4};
    const uint16_t bf16[] = {0x3f80, 0xc000, 0x7f80}, f16[] = {0x3c00, 0x0001, 0xfbff};
    const void *data[] = {bf16, f32, f16};
    FgTensorOut tensors[] = {{"c", FG_ST_BF16, 1, three},
                             {"layer.\"b\"", FG_ST_F32, 2, square},
                             {"a", FG_ST_F16, 1, three}};
    char *folder = scratch_new(), *path = scratch_path(folder, "t.safetensors");
    FgFail fail = {0};
    CHECK(fg_safetensors_write(path, tensors, 3, give, (void *)data, &fail));
    FgSafetensors *file = fg_safetensors_open(path, &fail);
    CHECK(file && !fail.text);
    if (file) {
        float out[4];
        CHECK_EQ_U64(fg_safetensors_count(file), 3);
        const FgTensor *b = fg_safetensors_find(file, "layer.\"b\"");
        CHECK(b && b->rank == 2 && b->dims[1] == 2 && b->elements == 4 &&
              !memcmp(b->data, f32, 16));
        CHECK(b && (uintptr_t)b->data % 8 == 0);
        fg_tensor_floats(fg_safetensors_find(file, "c"), 0, 3, out);
        CHECK(out[0] == 1 && out[1] == -2 && isinf(out[2]));
        fg_tensor_floats(fg_safetensors_find(file, "a"), 1, 2, out);
        CHECK(out[0] == 0x1p-24f && out[1] == -65504);
        CHECK(!fg_safetensors_find(file, "d"));
        CHECK_STR(fg_safetensors_at(file, 0)->name, "a");
    }
    fg_safetensors_close(file);
    size_t bytes;
    char *text = scratch_read(path, &bytes);
    CHECK(text && strstr(text + 8, "\"__metadata__\":{\"format\":\"pt\"}"));
    free(text);
    CHECK(!fg_safetensors_write("/nonexistent/t", tensors, 3, give, (void *)data, &fail));
    CHECK(fail.text && strstr(fail.text, "cannot be created"));
    fg_fail_clear(&fail);
    scratch_remove(folder);
    free(path);
    free(folder);
}

/* A name that no header can hold, and one that stands twice: no file, instead of one with a hole.
 */
static void bad_names(int *failures)
{
    static const char *const NAMES[] = {"\xff.weight", "a", "__metadata__"};
    const int64_t one[] = {1};
    const float value = 1;
    const void *data[] = {&value, &value};
    char *folder = scratch_new(), *path = scratch_path(folder, "t.safetensors");
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const FgTensorOut tensors[] = {{"a", FG_ST_F32, 1, one}, {NAMES[i], FG_ST_F32, 1, one}};
        FgFail fail = {0};
        CHECK(!fg_safetensors_write(path, tensors, 2, give, (void *)data, &fail));
        CHECK(fail.text && strstr(fail.text, "not valid UTF-8, or two have one name"));
        fg_fail_clear(&fail);
    }
    CHECK(rmdir(folder) == 0);
    free(path);
    free(folder);
}

UNIT_MAIN({"bad entries", bad_entries}, {"bad headers", bad_headers}, {"bad files", bad_files},
          {"odd but good", odd_but_good}, {"round trip", round_trip}, {"bad names", bad_names})
