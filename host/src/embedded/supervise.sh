# Runs a server for as long as a process holds the lock "$1", even if its holders are killed.
#
# sh -c SCRIPT name ALIVE WATCH SERVER [ARG]...
#
# ALIVE: every user of the server holds it shared. The kernel frees it when the user's process
#        ends, killed or not. The process that then gets it exclusively ends the server.
# WATCH: held exclusively for as long as this script runs. While it is free, a server that is still
#        there would never end.
alive=$1 watch=$2
shift 2
exec 8>"$watch"
flock -n 8 || exit 75
"$@" 8>&- &
server=$!
# The lock is kept until the server has ended: a process that waits for it never meets a dying server.
flock "$alive" sh -c '
  kill -TERM "$1"
  tries=0
  while kill -0 "$1" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -eq 500 ] && kill -KILL "$1"
    [ "$tries" -ge 550 ] && exit 1
    sleep 0.02
  done
' end "$server" 8>&- 2>/dev/null &
ender=$!
wait "$server"
status=$?
kill "$ender" 2>/dev/null
exit "$status"
