/* The least a unit test needs: checks that count failures, and a main that runs named cases. */
#ifndef FG_TESTS_UNIT_H
#define FG_TESTS_UNIT_H

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct UnitCase {
    const char *name;
    void (*run)(int *failures);
} UnitCase;

/* A case is `static void name(int *failures)`; the checks below add to *failures. */
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                            \
            ++*failures;                                                                           \
        }                                                                                          \
    } while (0)
#define CHECK_EQ_U64(a, b)                                                                         \
    do {                                                                                           \
        uint64_t unit_a = (uint64_t)(a), unit_b = (uint64_t)(b);                                   \
        if (unit_a != unit_b) {                                                                    \
            printf("%s:%d: %s is %" PRIu64 ", not %" PRIu64 "\n", __FILE__, __LINE__, #a, unit_a,  \
                   unit_b);                                                                        \
            ++*failures;                                                                           \
        }                                                                                          \
    } while (0)
#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *unit_a = (a), *unit_b = (b);                                                   \
        if (!unit_a || strcmp(unit_a, unit_b) != 0) {                                              \
            printf("%s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #a,                    \
                   unit_a ? unit_a : "(null)", unit_b);                                            \
            ++*failures;                                                                           \
        }                                                                                          \
    } while (0)
#define CHECK_NEAR(a, b, tol)                                                                      \
    do {                                                                                           \
        double unit_a = (a), unit_b = (b);                                                         \
        if (!(fabs(unit_a - unit_b) <= (tol))) {                                                   \
            printf("%s:%d: %s is %.9g, not %.9g\n", __FILE__, __LINE__, #a, unit_a, unit_b);       \
            ++*failures;                                                                           \
        }                                                                                          \
    } while (0)

#define UNIT_MAIN(...)                                                                             \
    int main(void)                                                                                 \
    {                                                                                              \
        const UnitCase cases[] = {__VA_ARGS__};                                                    \
        int failed = 0;                                                                            \
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {                                \
            int failures = 0;                                                                      \
            cases[i].run(&failures);                                                               \
            printf("%s %s\n", cases[i].name, failures ? "FAILED" : "ok");                          \
            failed += failures != 0;                                                               \
        }                                                                                          \
        return failed != 0;                                                                        \
    }

#endif
