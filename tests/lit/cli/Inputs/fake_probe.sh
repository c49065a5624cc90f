#!/bin/sh
# Says what it was given, and fails where it is asked to.
printf 'fg_probe:'
for word; do printf ' <%s>' "$word"; done
printf '\n'
[ "$2" != fails ]
