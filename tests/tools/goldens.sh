#!/bin/sh
# goldens.sh FG_OPT SOURCE: rewrites docs/ops.md from the op table and says whether it changed.
set -eu
fg_opt=$1
file=$2/docs/ops.md
"$fg_opt" --ops-markdown > "$file.new"
if cmp -s "$file.new" "$file"; then
    rm "$file.new"
    echo "docs/ops.md is as it was"
else
    mv "$file.new" "$file"
    echo "docs/ops.md was rewritten"
fi
