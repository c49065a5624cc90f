/* The frontier as a plot: SVG without anything from outside. The curve is a staircase, because a
 * plan stays what it is until more memory allows another one. */
#include "tools/command/frontier.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define WIDTH 860.0
#define HEIGHT 500.0
#define LEFT 80.0
#define RIGHT 30.0
#define TOP 60.0
#define BOTTOM 60.0
#define TICKS 6
#define GIB 1073741824.0
#define LINE 14.0  /* between labels that would touch */
#define LETTER 6.4 /* mean width, about */

typedef struct Axis {
    double low, high, step; /* in units: GiB, ms */
} Axis;

/* Where a label stands: from low to high, at y. */
typedef struct Label {
    double low, high, y;
} Label;

typedef struct Plot {
    const FgFrontier *f;
    FgArena *arena;
    FgBuf *out;
    Axis x, y;
    double y_unit; /* microseconds */
    const char *y_name;
    FG_VEC(Label) taken;
} Plot;

/* Text for XML. */
static const char *escaped(FgArena *arena, const char *text)
{
    FgBuf out;
    fg_buf_init(&out, arena);
    for (; *text; text++) {
        if (*text == '<')
            fg_buf_puts(&out, "&lt;");
        else if (*text == '>')
            fg_buf_puts(&out, "&gt;");
        else if (*text == '&')
            fg_buf_puts(&out, "&amp;");
        else if (*text == '"')
            fg_buf_puts(&out, "&quot;");
        else if ((unsigned char)*text >= 0x20)
            fg_buf_put(&out, text, 1);
    }
    return fg_buf_text(&out);
}

/* 1, 2 or 5 times a power of ten: about TICKS of them in the range. */
static Axis axis_of(double low, double high)
{
    double range = high > low ? high - low : (high > 0.0 ? 0.1 * high : 1.0);
    double power = pow(10.0, floor(log10(range / TICKS))), part = range / TICKS / power;
    double step = power * (part > 5.0 ? 10.0 : part > 2.0 ? 5.0 : part > 1.0 ? 2.0 : 1.0);
    Axis out = {floor((low - 0.02 * range) / step) * step, ceil((low + 1.05 * range) / step) * step,
                step};
    out.low = out.low < 0.0 ? 0.0 : out.low;
    return out;
}

static double x_at(const Plot *p, double bytes)
{
    return LEFT + (bytes / GIB - p->x.low) / (p->x.high - p->x.low) * (WIDTH - LEFT - RIGHT);
}

static double y_at(const Plot *p, double us)
{
    return HEIGHT - BOTTOM -
           (us / p->y_unit - p->y.low) / (p->y.high - p->y.low) * (HEIGHT - TOP - BOTTOM);
}

static void scale(Plot *p)
{
    const FgFrontier *f = p->f;
    double low = (double)f->points.data[0].memory_bytes, high = low;
    double fast = f->fastest_us, slow = fast;
    for (uint32_t i = 0; i < f->points.len + f->marks.len; i++) {
        bool mark = i >= f->points.len;
        const FgFrontierPlan *plan =
            mark ? &f->marks.data[i - f->points.len].plan : f->points.data[i].plan;
        double at = (double)(mark ? plan->needs_bytes : f->points.data[i].memory_bytes);
        low = at < low ? at : low;
        high = at > high ? at : high;
        slow = plan->step_us > slow ? plan->step_us : slow;
    }
    p->y_unit = slow >= 2e6 ? 1e6 : slow >= 2e3 ? 1e3 : 1.0;
    p->y_name = slow >= 2e6 ? "s" : slow >= 2e3 ? "ms" : "us";
    p->x = axis_of(low / GIB, high / GIB);
    p->y = axis_of(fast / p->y_unit, slow / p->y_unit);
}

/* ---- axes ---- */
static void put_text(Plot *p, double x, double y, const char *anchor, const char *text)
{
    fg_buf_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                  anchor, escaped(p->arena, text));
}

static void put_line(Plot *p, double x1, double y1, double x2, double y2, const char *kind)
{
    fg_buf_printf(p->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                  kind, x1, y1, x2, y2);
}

static void put_axes(Plot *p)
{
    double right = WIDTH - RIGHT, bottom = HEIGHT - BOTTOM;
    uint32_t n = (uint32_t)((p->x.high - p->x.low) / p->x.step + 0.5);
    for (uint32_t i = 0; i <= n; i++) {
        double value = p->x.low + i * p->x.step, x = x_at(p, value * GIB);
        put_line(p, x, TOP, x, bottom, "grid");
        put_text(p, x, bottom + 18.0, "middle", fg_arena_printf(p->arena, "%.6g", value));
    }
    n = (uint32_t)((p->y.high - p->y.low) / p->y.step + 0.5);
    for (uint32_t i = 0; i <= n; i++) {
        double value = p->y.low + i * p->y.step, y = y_at(p, value * p->y_unit);
        put_line(p, LEFT, y, right, y, "grid");
        put_text(p, LEFT - 8.0, y + 4.0, "end", fg_arena_printf(p->arena, "%.6g", value));
    }
    put_line(p, LEFT, TOP, LEFT, bottom, "axis");
    put_line(p, LEFT, bottom, right, bottom, "axis");
    put_text(p, (LEFT + right) / 2.0, HEIGHT - 18.0, "middle", "memory of a device, GiB");
    fg_buf_printf(p->out,
                  "<text transform=\"translate(22 %.1f) rotate(-90)\" "
                  "text-anchor=\"middle\">step, %s</text>\n",
                  (TOP + bottom) / 2.0, p->y_name);
}

/* ---- curve ---- */
/* Moves a label off the others, by lines. */
static void make_room(const Plot *p, Label *at, double line)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < p->taken.len; i++) {
            const Label *other = &p->taken.data[i];
            if (at->low < other->high && other->low < at->high && fabs(other->y - at->y) < LINE) {
                at->y = other->y + line;
                moved = true;
            }
        }
    }
}

/* A label beside (x, y): above it for what the curve lies below, below it and to the left for
 * points of the curve, which falls. */
static void put_label(Plot *p, double x, double y, bool below, const char *text)
{
    double wide = LETTER * (double)strlen(text), low = x + 8.0;
    if (below || x > WIDTH * 0.65)
        low = x - 8.0 - wide;
    low = low < LEFT + 8.0 ? LEFT + 8.0 : low;
    Label at = {low, low + wide, below ? y + 16.0 : y - 8.0};
    make_room(p, &at, below ? LINE + 0.1 : -LINE - 0.1);
    fg_vec_push(p->arena, &p->taken, at);
    put_text(p, at.low, at.y, "start", text);
}

static const char *point_text(const Plot *p, const char *what, uint64_t memory,
                              const FgFrontierPlan *plan)
{
    return fg_arena_printf(p->arena, "%s%s%.2f GiB, %.4g %s", what, *what ? ": " : "",
                           (double)memory / GIB, plan->step_us / p->y_unit, p->y_name);
}

static void put_curve(Plot *p)
{
    const FgFrontier *f = p->f;
    fg_buf_puts(p->out, "<path class=\"curve\" d=\"");
    for (uint32_t i = 0; i < f->points.len; i++) {
        const FgFrontierPoint *point = &f->points.data[i];
        double x = x_at(p, (double)point->memory_bytes), y = y_at(p, point->plan->step_us);
        if (i == 0)
            fg_buf_printf(p->out, "M%.1f %.1f", x, y);
        else
            fg_buf_printf(p->out, " H%.1f V%.1f", x, y);
    }
    fg_buf_printf(p->out, " H%.1f\"/>\n", WIDTH - RIGHT);
    for (uint32_t i = 0; i < f->points.len; i++) {
        const FgFrontierPoint *point = &f->points.data[i];
        double x = x_at(p, (double)point->memory_bytes), y = y_at(p, point->plan->step_us);
        const char *tag = fg_frontier_tag_text(point);
        fg_buf_printf(p->out,
                      "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s</title>"
                      "</circle>\n",
                      x, y,
                      escaped(p->arena, point_text(p, tag, point->memory_bytes, point->plan)));
        if (*tag)
            put_label(p, x, y, i > 0, point_text(p, tag, point->memory_bytes, point->plan));
    }
}

static void put_marks(Plot *p)
{
    for (uint32_t i = 0; i < p->f->marks.len; i++) {
        const FgFrontierMark *m = &p->f->marks.data[i];
        double x = x_at(p, (double)m->plan.needs_bytes), y = y_at(p, m->plan.step_us);
        fg_buf_printf(p->out, "<path class=\"mark\" d=\"M%.1f %.1f l5 5 l-5 5 l-5 -5 z\"/>\n", x,
                      y - 5.0);
        put_label(p, x, y, false, point_text(p, m->name, m->plan.needs_bytes, &m->plan));
    }
}

/* What the machine has, where the plot reaches that far. */
static void put_offered(Plot *p)
{
    double at = (double)p->f->machine_bytes;
    if (at / GIB < p->x.low || at / GIB > p->x.high)
        return;
    put_line(p, x_at(p, at), TOP, x_at(p, at), HEIGHT - BOTTOM, "offered");
    put_text(p, x_at(p, at) - 4.0, TOP + 12.0, "end", "offered");
}

void fg_frontier_svg(const FgFrontier *f, FgBuf *out)
{
    Plot p = {.f = f, .arena = out->arena, .out = out};
    scale(&p);
    fg_buf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                  "viewBox=\"0 0 %.0f %.0f\">\n",
                  WIDTH, HEIGHT, WIDTH, HEIGHT);
    fg_buf_puts(out, "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px}"
                     ".grid{stroke:#e4e4e4}.axis{stroke:#222}.offered{stroke:#999;"
                     "stroke-dasharray:4 4}.curve{fill:none;stroke:#1f5fa8;stroke-width:2}"
                     ".point{fill:#1f5fa8}.mark{fill:#b8442c}</style>\n");
    fg_buf_printf(out, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", WIDTH, HEIGHT);
    fg_buf_printf(out,
                  "<text class=\"title\" x=\"%.0f\" y=\"30\">%s on %s, %u rank%s: predicted "
                  "step by memory</text>\n",
                  LEFT, escaped(p.arena, f->graph->name), escaped(p.arena, f->machine->name),
                  f->ranks, f->ranks == 1 ? "" : "s");
    put_axes(&p);
    put_offered(&p);
    put_curve(&p);
    put_marks(&p);
    fg_buf_puts(out, "</svg>\n");
}
