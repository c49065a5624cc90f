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

#define SETS ((1u << FG_N_STREAMS) - 1) /* but the empty one */
#define COLUMNS (FG_N_STREAMS + 1)
#define EPSILON 1e-9

/* Rows: one a set, its slack basic at first; the last: reduced costs. Columns: what is not basic,
 * then the right-hand side. */
typedef struct Tableau {
    double cell[SETS + 1][COLUMNS];
    int basic[SETS], free[FG_N_STREAMS]; /* variables: engines, then slacks */
} Tableau;

static void start(Tableau *t, const FgMachine *machine, const double *work)
{
    memset(t, 0, sizeof *t);
    for (uint32_t set = 1; set <= SETS; set++) {
        bool running[FG_N_STREAMS];
        double speed[FG_N_STREAMS];
        for (uint32_t s = 0; s < FG_N_STREAMS; s++)
            running[s] = set >> s & 1;
        fg_engine_speeds(machine, running, speed);
        for (uint32_t s = 0; s < FG_N_STREAMS; s++)
            t->cell[set - 1][s] = running[s] ? speed[s] : 0;
        t->cell[set - 1][FG_N_STREAMS] = 1;
        t->basic[set - 1] = (int)(FG_N_STREAMS + set - 1);
    }
    for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
        t->cell[SETS][s] = -work[s];
        t->free[s] = (int)s;
    }
}

/* The free variable of least number that improves; FG_N_STREAMS: none (Bland's rule: no cycles). */
static uint32_t entering(const Tableau *t, double scale)
{
    uint32_t best = FG_N_STREAMS;
    for (uint32_t c = 0; c < FG_N_STREAMS; c++)
        if (t->cell[SETS][c] < -EPSILON * scale &&
            (best == FG_N_STREAMS || t->free[c] < t->free[best]))
            best = c;
    return best;
}

/* The row that limits it first; of equals the variable of least number. SETS: none does. */
static uint32_t leaving(const Tableau *t, uint32_t column)
{
    uint32_t best = SETS;
    double least = 0;
    for (uint32_t r = 0; r < SETS; r++) {
        if (t->cell[r][column] <= EPSILON)
            continue;
        double ratio = t->cell[r][FG_N_STREAMS] / t->cell[r][column];
        bool equal = best < SETS && !(ratio < least) && !(ratio > least);
        if (best == SETS || ratio < least || (equal && t->basic[r] < t->basic[best])) {
            best = r;
            least = ratio;
        }
    }
    return best;
}

static void pivot(Tableau *t, uint32_t row, uint32_t column)
{
    double by = t->cell[row][column];
    for (uint32_t c = 0; c < COLUMNS; c++)
        t->cell[row][c] /= by;
    t->cell[row][column] = 1 / by;
    for (uint32_t r = 0; r <= SETS; r++) {
        if (r == row)
            continue;
        double times = t->cell[r][column];
        t->cell[r][column] = 0;
        for (uint32_t c = 0; c < COLUMNS; c++)
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
    for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
        scale = work[s] > scale ? work[s] : scale;
        out_price[s] = 0;
    }
    start(&t, machine, work);
    for (uint32_t steps = 0; steps < SETS * FG_N_STREAMS; steps++) {
        uint32_t column = entering(&t, scale), row;
        if (column == FG_N_STREAMS || (row = leaving(&t, column)) == SETS)
            break;
        pivot(&t, row, column);
    }
    for (uint32_t r = 0; r < SETS; r++)
        if (t.basic[r] < (int)FG_N_STREAMS && t.cell[r][FG_N_STREAMS] > 0)
            out_price[t.basic[r]] = t.cell[r][FG_N_STREAMS];
    for (uint32_t s = 0; s < FG_N_STREAMS; s++)
        bound += out_price[s] * work[s];
    return bound;
}
