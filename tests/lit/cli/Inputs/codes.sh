# codes.sh INPUTS OUT: runs the command in many ways and prints "what: exit code".
in=$1
out=$2
try()
{
    what=$1
    shift
    "$@" >"$out.log" 2>&1
    echo "$what: $?"
}
model="$in/tiny.json --machine $in/machine.json"
try compile foregather compile $model --emit c -o "$out.c"
try "flags with =" foregather compile $model --emit=c --schedule=minimum "--memory=8 MiB" -o "$out.c"
try "absent model" foregather compile "$in/absent.json"
try "absent machine" foregather compile "$in/tiny.json" --machine absent
try "no such folder" foregather compile $model --emit c -o "$out.absent/x.c"
try "no compiler" env CC=/absent/cc foregather compile $model -o "$out.exe"
try "unknown flag" foregather compile $model --rank 2
try "no room" foregather compile $model --memory 1080KiB
try "graph needs no room" foregather dump $model --memory 1080KiB --stage graph
foregather dump $model --schedule zero3 -o "$out.a.fg"
foregather dump $model --accumulate 2 -o "$out.b.fg"
try equal foregather diff "$out.a.fg" "$out.a.fg" --exit-code
try unequal foregather diff "$out.a.fg" "$out.b.fg" --exit-code
: >"$out.empty"
try "empty text" foregather tokens --bytes "$out.empty" -o "$out.bin"
mkdir -p "$out.tmp"
try "a bug" env TMPDIR="$out.tmp" foregather --internal-error
