/* joint: the least time in which all engines can do their work at the rates that they have beside
 * each other, whatever the order.
 *
 * A step runs, at each moment, some set S of engines, engine e at speed v(e, S). If t(S) is how
 * long each set runs, every engine gets its work w(e) done, and the step takes
 *
 *   min sum of t(S)   so that for every e: sum over S of v(e, S) t(S) >= w(e)
 *
 * at least; dependencies and memory can only make it longer. Of this linear program the dual is
 * solved: prices y(e) >= 0 of a second of each engine's work,
 *
 *   max sum of y(e) w(e)   so that for every S: sum over e in S of v(e, S) y(e) <= 1
 *
 * whose variables are few and whose start y = 0 is feasible, so that every step of the simplex
 * method ends in a valid bound. The price of an engine is by how much the bound falls for a second
 * less of its work. */
#include "passes/simulate.h"

#include <string.h>

#define ENGINES ((uint32_t)FG_N_ENGINES)
#define MOST_SETS (1u << ENGINES)
#define EPSILON 1e-9

/* Rows: one a set, its slack basic at first; the last: reduced costs. Columns: what is not basic,
 * then the right-hand side. */
typedef struct Tableau {
    double cell[MOST_SETS + 1][ENGINES + 1];
    int basic[MOST_SETS], free[ENGINES]; /* variables: engines, then slacks */
    uint32_t rows;
} Tableau;

/* Engines without work have no part in any set; what shares a stream has no set together. */
static bool may_run(const double *work, uint32_t set)
{
    const uint32_t reduce = 1u << FG_STREAM_REDUCE | 1u << FG_ENGINE_PARTS,
                   compute = 1u << FG_STREAM_COMPUTE | 1u << FG_ENGINE_LIGHT;
    for (uint32_t e = 0; e < ENGINES; e++)
        if ((set >> e & 1) && !(work[e] > 0))
            return false;
    return (set & reduce) != reduce && (set & compute) != compute;
}

static void add_set(Tableau *t, const FgMachine *machine, uint32_t set)
{
    bool running[FG_N_ENGINES];
    double speed[FG_N_ENGINES];
    for (uint32_t e = 0; e < ENGINES; e++)
        running[e] = set >> e & 1;
    fg_engine_speeds(machine, running, speed);
    for (uint32_t e = 0; e < ENGINES; e++)
        t->cell[t->rows][e] = running[e] ? speed[e] : 0;
    t->cell[t->rows][ENGINES] = 1;
    t->basic[t->rows] = (int)(ENGINES + t->rows);
    t->rows++;
}

static void start(Tableau *t, const FgMachine *machine, const double *work)
{
    memset(t, 0, sizeof *t);
    for (uint32_t set = 1; set < MOST_SETS; set++)
        if (may_run(work, set))
            add_set(t, machine, set);
    for (uint32_t e = 0; e < ENGINES; e++) {
        t->cell[t->rows][e] = -work[e];
        t->free[e] = (int)e;
    }
}

/* The free variable of least number that improves; ENGINES: none (Bland's rule: no cycles). */
static uint32_t entering(const Tableau *t, double scale)
{
    uint32_t best = ENGINES;
    for (uint32_t c = 0; c < ENGINES; c++)
        if (t->cell[t->rows][c] < -EPSILON * scale &&
            (best == ENGINES || t->free[c] < t->free[best]))
            best = c;
    return best;
}

/* The row that limits it first; of equals the variable of least number. The rows' number: none
 * does. */
static uint32_t leaving(const Tableau *t, uint32_t column)
{
    uint32_t best = t->rows;
    double least = 0;
    for (uint32_t r = 0; r < t->rows; r++) {
        if (t->cell[r][column] <= EPSILON)
            continue;
        double ratio = t->cell[r][ENGINES] / t->cell[r][column];
        bool equal = best < t->rows && !(ratio < least) && !(ratio > least);
        if (best == t->rows || ratio < least || (equal && t->basic[r] < t->basic[best])) {
            best = r;
            least = ratio;
        }
    }
    return best;
}

static void pivot(Tableau *t, uint32_t row, uint32_t column)
{
    double by = t->cell[row][column];
    for (uint32_t c = 0; c <= ENGINES; c++)
        t->cell[row][c] /= by;
    t->cell[row][column] = 1 / by;
    for (uint32_t r = 0; r <= t->rows; r++) {
        if (r == row)
            continue;
        double times = t->cell[r][column];
        t->cell[r][column] = 0;
        for (uint32_t c = 0; c <= ENGINES; c++)
            t->cell[r][c] -= times * t->cell[row][c];
    }
    int swap = t->basic[row];
    t->basic[row] = t->free[column];
    t->free[column] = swap;
}

double fg_joint_bound(const FgMachine *machine, const double *work, double *out_price)
{
    Tableau t;
    double scale = 0, bound = 0;
    for (uint32_t e = 0; e < ENGINES; e++) {
        scale = work[e] > scale ? work[e] : scale;
        out_price[e] = 0;
    }
    start(&t, machine, work);
    for (uint32_t steps = 0; steps < MOST_SETS * ENGINES; steps++) {
        uint32_t column = entering(&t, scale), row;
        if (column == ENGINES || (row = leaving(&t, column)) == t.rows)
            break;
        pivot(&t, row, column);
    }
    for (uint32_t r = 0; r < t.rows; r++)
        if (t.basic[r] < (int)ENGINES && t.cell[r][ENGINES] > 0)
            out_price[t.basic[r]] = t.cell[r][ENGINES];
    for (uint32_t e = 0; e < ENGINES; e++)
        bound += out_price[e] * work[e];
    return bound;
}
