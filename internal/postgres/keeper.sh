# shellcheck shell=sh
# Runs a server and stops it when its owners are gone.
#
# Arguments: the postgres program, the server's folder, the path of the named
# pipe of leases (empty for a private server), and the seconds that a shared
# server waits for another owner after the last one has gone.
# Descriptors: 0 is the reading end of the pipe that the owners hold open, 1
# takes the server's process id, 3 is the lock of the server, 4 of the keeper.
postgres=$1 folder=$2 fifo=$3 linger=$4
exec 5<&0 </dev/null 2>/dev/null
trap '' HUP INT TERM

"$postgres" -D "$folder/data" >>"$folder/log" 2>&1 4<&- 5<&- &
server=$!
echo "$server"
exec >/dev/null

(
	if [ -n "$fifo" ]; then
		# Each owner writes a line when it joins. A round ends when nobody
		# holds the pipe open; the sleep holds it for the time of grace. The
		# braces open it here: the child might do so when it is gone already.
		joined=1
		while [ -n "$joined" ]; do
			joined=
			{ sleep "$linger" 3<&- 4<&- 5<&- & } 6>"$fifo"
			while read -r _; do joined=1; done <&5
		done
		# From here nobody can join. Who did since the last round is waited for.
		rm -f "$fifo"
	fi
	while read -r _; do :; done <&5
	: >"$folder/over"
	kill -QUIT "$server"
	kill -CONT "$server"
	# The server gives its children 5 seconds before it kills them.
	tries=100
	while kill -0 "$server" && [ "$tries" -gt 0 ]; do
		sleep 0.1
		tries=$((tries - 1))
	done
	kill -KILL "$server"
	rm -rf "$folder"
) &
watch=$!

wait "$server"
status=$?
if [ -e "$folder/over" ]; then
	wait "$watch"
else
	kill -KILL "$watch"
fi
if [ -n "$fifo" ] || [ -e "$folder/over" ]; then
	rm -rf "$folder"
fi
exit "$status"
