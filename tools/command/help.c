/* Help texts: short, grouped, with examples that can be pasted. Exact goldens of them stand in
 * tests/lit/cli. */
#include "passes/passes.h"
#include "tools/command/command.h"

#include <string.h>

typedef struct Page {
    FgVerb verb;
    const char *usage, *what, *examples;
} Page;

static const Page pages[] = {
    {FG_VERB_COMPILE, "compile MODEL [flags]",
     "Plans a model's training step, proves the plan, and makes a program of it.\n"
     "The summary says whether it fits, how fast it should be, and what decided that.\n"
     "Without -o the result has the model's name; --emit c adds .c to a name that does not end "
     "so.\n",
     "  foregather compile examples/tiny-llama.json --ranks 2 -o tiny\n"
     "  ./tiny --data tokens.bin --steps 100 --lr 3e-4\n"
     "  foregather compile llama.json --machine 2xT4 --precision bf16 --recompute full --emit c\n"},
    {FG_VERB_DUMP, "dump MODEL [flags]",
     "Prints a model as IR text: whole tensors with their backward pass (graph), buckets and\n"
     "collectives (dist), or the schedule with streams, waits and addresses (sched); without -o "
     "on\n"
     "standard output. Passes of --after, in their order (fg-opt --list-passes says what they "
     "do):\n"
     "  " FG_PIPELINE_GRAPH ",\n"
     "  " FG_PIPELINE_PLANNED "\n"
     "Takes every flag of compile. --emit, --save-temps, --no-verify and --arch are of the "
     "program\n"
     "that is emitted: they are checked as there, and change nothing here. --report is of the "
     "whole plan\n"
     "at any stage.\n",
     "  foregather dump examples/mlp.json --stage graph\n"
     "  foregather dump examples/mlp.json --after shard -o sharded.fg\n"},
    {FG_VERB_DIFF, "diff MODEL [flags]  |  diff A.fg B.fg",
     "Compares the ZeRO-3 schedule with the compiled one, or two dumps: figures side by side, "
     "then\n"
     "what moved, how far, and what is kept or gathered again.\n"
     "Takes every flag of compile. --emit, --save-temps, --no-verify and --arch are of the "
     "program\n"
     "that is emitted: they are checked as there, and change nothing here. --report is of the\n"
     "compiled schedule.\n",
     "  foregather diff examples/tiny-llama.json --ranks 2 --memory 64MiB\n"
     "  foregather diff before.fg after.fg --exit-code\n"},
    {FG_VERB_TOKENS, "tokens --bytes FILE... -o DATA.bin",
     "Makes a token file (llm.c's form, 16 bits a token) from text: the files one after the "
     "other.\n",
     "  foregather tokens --bytes README.md docs/ir.md -o data.bin\n"},
    {FG_VERB_VERIFY, "verify PROGRAM.c [--plan PLAN.fg]",
     "Reads an emitted program back and proves it: accesses in order, reads that find what was\n"
     "written, one release a gather, everything inside the memory offered; with a plan, that the\n"
     "program is that plan, call by call. docs/proof.md says what the proof rests on.\n",
     "  foregather compile examples/tiny-llama.json --emit c -o tiny.c\n"
     "  foregather dump examples/tiny-llama.json -o tiny.fg\n"
     "  foregather verify tiny.c --plan tiny.fg\n"},
    {FG_VERB_PLACE, "place ITEMS.csv [--capacity SIZE]",
     "Places items with lifetimes and sizes in one memory: reads a table with the columns\n"
     "id,lower,upper,size (upper is exclusive), and alignment, hint and gaps where they are\n"
     "wanted; prints it with a column offset. Exit code 3 when none is found within --capacity.\n",
     "  foregather place items.csv --capacity 1048576 > placed.csv\n"},
    {FG_VERB_FRONTIER, "frontier MODEL [flags]",
     "The curve of memory against step time, from the least memory that works to where more stops\n"
     "helping, each point with the levers that its plan uses; ZeRO-3 beside it. Without --memory\n"
     "the curve does not end at what the machine has.\n",
     "  foregather frontier examples/llama-3.2-1b.json --machine 2xT4 --precision bf16\n"
     "  foregather frontier examples/tiny-llama.json --format svg -o frontier.svg\n"},
    {FG_VERB_EXPLAIN, "explain MODEL [NODE] [flags]",
     "Says why a node of the schedule runs when it does: what it awaits, whose memory it takes,\n"
     "what stops a gather from moving earlier, and what one more GiB would buy. NODE is a bucket,\n"
     "a parameter, a node, a part of their names between dots such as layers.3, or #id. Without\n"
     "NODE: the bound and its cause, the streams, what is exposed, and the critical path.\n",
     "  foregather explain examples/tiny-llama.json\n"
     "  foregather explain examples/tiny-llama.json layers.1 --memory 64MiB\n"},
    {FG_VERB_PROBE, "probe [--ranks N] [-o MACHINE.json]  |  probe --for MODEL [flags]",
     "Measures the GPUs of this machine, all of them or N, and writes a machine file: rates, "
     "curves\n"
     "of collectives and host copies, how engines slow each other, what a process takes. Without "
     "-o\n"
     "on standard output. It takes about half a minute, in which nothing else should run there.\n"
     "\n"
     "With --for: compiles the model for these GPUs, lets the program choose the algorithms of "
     "its\n"
     "matrix products by measuring them, and keeps the choice beside it as PROGRAM.gemm, which "
     "the\n"
     "program reads when it starts.\n",
     "  foregather probe -o here.json\n"
     "  foregather probe --for llama.json --machine here.json --precision bf16 -o llama\n"},
};
#define N_PAGES (sizeof pages / sizeof *pages)

void fg_help(FgArena *arena)
{
    (void)arena;
    fputs("foregather compiles a model graph into a training program whose sharded parameters are\n"
          "gathered exactly early enough, and whose memory is planned and proved before the first "
          "step.\n"
          "\n"
          "usage: foregather VERB ... [flags]\n"
          "\n"
          "  compile MODEL          plan, prove and build a training program\n"
          "  dump MODEL             print the IR at any stage\n"
          "  diff MODEL | A.fg B.fg compare ZeRO-3 with the compiled schedule, or two dumps\n"
          "  tokens --bytes FILE... make a token file from text\n"
          "  verify PROGRAM.c       prove an emitted program\n"
          "  place ITEMS.csv        give items with lifetimes and sizes their addresses\n"
          "  frontier MODEL         memory against step time: table, JSON or plot\n"
          "  explain MODEL [NODE]   why the schedule is what it is\n"
          "  probe                  measure this machine's GPUs, or products on them\n"
          "  help VERB              what a verb does, and its flags\n"
          "  version                the version, and the targets of this build\n"
          "\n"
          "examples:\n"
          "  foregather compile examples/tiny-llama.json --ranks 2 --memory 64MiB -o tiny\n"
          "  foregather tokens --bytes README.md docs/*.md -o data.bin\n"
          "  ./tiny --data data.bin --steps 200 --lr 1e-3\n"
          "\n"
          "exit codes: 0 ok, 1 bad input, 2 usage, 3 does not fit, 4 internal error\n",
          stdout);
}

bool fg_help_verb(FgArena *arena, const char *verb)
{
    for (size_t i = 0; i < N_PAGES; i++) {
        if (strcmp(fg_verb_name(pages[i].verb), verb) != 0)
            continue;
        FgBuf flags;
        fg_buf_init(&flags, arena);
        fg_flags_help(pages[i].verb, &flags);
        printf("usage: foregather %s\n\n%s\nflags:\n%s\nexamples:\n%s", pages[i].usage,
               pages[i].what, fg_buf_text(&flags), pages[i].examples);
        return true;
    }
    return false;
}
