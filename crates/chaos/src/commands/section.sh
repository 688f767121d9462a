# What runs under the lock: `sh section.sh NUMBER SECONDS polite|stubborn`, in a folder that all share.
#
# It locks two files, and whoever finds one of them locked has met somebody. The kernel is the judge: such a lock
# ends with the last process that has the file open, however it ends. Descriptor 8 belongs to this shell alone, 9 also
# to what it starts: a child, and one that leaves the session.
#
# A command that ends by itself may leave things running under no lock. This one does not, so that only what redbolt
# leaves is found.

leave() {
    kill -9 $family
    exec 9>&-
    exec 7>> family
    # Until the last of them is gone.
    flock 7 8>&-
    exit "$1"
}

family=
# $SIGNALS are more that must not end this shell alone.
if [ "$3" = stubborn ]; then trap '' TERM $SIGNALS; else trap 'leave 143' TERM $SIGNALS; fi
exec 2> /dev/null 8>> command 9>> family
read -r now _ < /proc/uptime
flock -n 8 9>&- || echo "$now: $1 meets the command of $(cat holder)" >> overlaps
flock -n 9 8>&- || echo "$now: $1 meets what $(cat holder) started" >> overlaps
echo "$1" > holder
sleep 1000 8>&- &
family=$!
setsid sleep 1000 8>&- &
family="$family $!"
echo "$$ $family" > "ready-$1.new"
mv "ready-$1.new" "ready-$1" 8>&- 9>&-
sleep "$2" 8>&- 9>&- &
wait $!
leave 0
