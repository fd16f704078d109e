#!/usr/bin/env bash
# A worker for taskq in bash and psql: own, heartbeat, return.
#
#     PGHOST=... PGDATABASE=... worker.sh [ACTION]
#
# It performs one task at a time; run as many as you want tasks at once. SIGTERM or SIGINT: it takes no more, lets the
# task in hand finish within the grace, and gives it back if that does not suffice. A task that was cancelled or taken
# over is dropped as soon as a heartbeat hears of it. A psql for each call: no connection is held while a task runs.
set -uo pipefail

action=${1:-checksum}
actor="$(uname -n):$$"
lease=${TASKQ_LEASE:-60} # seconds that a death of this process goes unnoticed
grace=${TASKQ_GRACE:-20} # seconds to finish after SIGTERM; less than the supervisor grants
wait=10                  # seconds of one waiting call
export PGCONNECT_TIMEOUT=5 PGAPPNAME='taskq worker'

scratch=$(mktemp -d)
body=$scratch/body error=$scratch/error id='' token=''
export body id token
trap 'rm -rf "$scratch"' EXIT

log() { printf '%(%T)T %s\n' -1 "$*" >&2; }

# The work itself: reads the body from the file $body, writes the result (JSON). Exit code 65: no further try makes sense, and
# what it has written says why.
perform() {
    local text seconds fail error=$scratch/perform.error
    if ! { text=$(field text) && seconds=$(field seconds) && fail=$(field fail); }; then
        # Class 22: it is no JSON.
        grep -q 'ERROR: *22' "$error" || return 1
        printf 'the body cannot be read'
        return 65
    fi
    [ -n "$text" ] || { printf 'the body lacks a text'; return 65; }
    [ -z "$fail" ] || { log "$fail"; return 1; } # anything else may work the next time
    sleep "${seconds:-0}"
    printf '{"sha256": "%s", "client": "shell"}' "$(printf %s "$text" | sha256sum | cut -d ' ' -f 1)"
}

# A field of the body.
field() {
    call -v field="$1" <<<"\\set body \`cat \"\$body\"\`
        SELECT :'body'::jsonb ->> :'field'"
}

# Runs the statement on standard input. Variables given with -v are quoted by :'name'. Those that others on the machine
# must not see in the list of processes go through the environment (\getenv, psql 15). The error is a bare SQLSTATE.
options=(-XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=sqlstate)
sql() { psql "${options[@]}" "$@"; }

# The same, again and again until the server answers; its answer may be an error.
call() {
    local delay=1 statement
    statement=$(cat)
    while true; do
        sql "$@" <<<"$statement" 2>"$error" && return
        # An error of a statement is an answer; a FATAL one is the loss of the connection, and 25006 that of a standby, since
        # a failover or not yet promoted.
        ! grep '^ERROR' "$error" | grep -qv 25006 || return 1
        [ "$SECONDS" -le "$give_up_at" ] || return 1
        log "no connection, again in $delay s: $(head -n 1 "$error")"
        sleep "$delay"
        delay=$((delay < 8 ? delay * 2 : 10))
    done
}

stopping=''
give_up_at=1000000000
stop() {
    stopping=${stopping}yes
    give_up_at=$((SECONDS + grace + 5))
    [ -z "${waiter:-}" ] || end_wait "$waiter" &
}
trap stop TERM INT

# Ends the waiting call on the server: nothing is granted then, or the answer is on its way already. (An interrupt of psql
# would lose an answer that has come and is not written yet, and with it the token.)
end_wait() {
    while kill -0 "$1" 2>/dev/null; do
        sql -v name="$actor" >/dev/null 2>&1 <<'SQL'
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
 WHERE strpos(query, format('own_tasks(%L, ', :'name')) > 0 AND pid <> pg_backend_pid()
SQL
        sleep 0.2
    done
}

# Waits for a child, whatever signals come in between; its exit code.
await() {
    local code before
    while true; do
        before=$stopping
        wait "$1"
        code=$?
        # A wait that a signal has ended gives the signal's code, not the child's.
        [ "$before" != "$stopping" ] || return "$code"
    done
}

# The next task into id, token, num_tries and the file body; nothing if there is none. Sleeps in the server until there is.
own() {
    local fields=()
    # In the background, because bash heeds no signal while it runs a program in the foreground.
    psql "${options[@]}" -z0 -v actor="$actor" -v action="$action" -v lease="$lease" -v wait="$wait" \
        >"$scratch/granted" 2>"$error" <<'SQL' &
SELECT task_id, token, num_tries, body
  FROM taskq.own_tasks(:'actor', 1, ARRAY[:'action'], :'lease' * interval '1 second', wait => :'wait' * interval '1 second')
SQL
    waiter=$!
    [ -z "$stopping" ] || end_wait "$waiter" &
    if ! await "$waiter" && [ -z "$stopping" ]; then
        log "own_tasks: $(head -n 1 "$error")"
        sleep "$((RANDOM % 3 + 1))"
    fi
    waiter=''
    mapfile -d '' -t fields <"$scratch/granted"
    [ ${#fields[@]} -ge 4 ] || return 1
    id=${fields[0]} token=${fields[1]} num_tries=${fields[2]}
    printf %s "${fields[3]}" >"$body"
}

# Moves the deadline; fails if the task is not ours any more.
extend() {
    local owned
    owned=$(call -v actor="$actor" -v lease="$lease" <<'SQL'
\getenv id id
\getenv token token
SELECT owned FROM taskq.extend_tasks_ownership(:'actor', ARRAY[:'id'], ARRAY[:'token'::uuid], :'lease' * interval '1 second')
SQL
    )
    [ "$owned" != f ]
}

# Ends the performance: give CODE STATUS RESULT COUNT_TRY, empty for none; false: it uses up no try.
give() {
    local code
    if code=$(result=$3 call -v code="$1" -v status="$2" -v count="$4" <<'SQL'
\getenv id id
\getenv token token
\getenv result result
SELECT taskq.return_task(:'id', :'token', :'code', nullif(:'status', ''), result => nullif(:'result', '')::jsonb,
                         count_try => nullif(:'count', '')::boolean)
SQL
    ); then
        log "$id: $code"
    elif grep -q 'TQ00[13]' "$error"; then
        # Cancelled, deleted, taken over, or returned by us and only the answer was lost.
        log "$id: dropped, it is not ours any more"
    elif [ -n "$3" ] && grep -q 'ERROR: *22' "$error"; then
        # It is no JSON, or none that the server can store. The next try would have no other.
        give aborted 'its result is no JSON' '' ''
    else
        log "$id: not returned: $(cat "$error")"
    fi
}

# Performs the task in hand beside heartbeats, and returns it.
work() {
    local handler next_beat=$((SECONDS + (lease + 2) / 3)) interrupted='' code
    log "$id: try $num_tries"
    # A process group of its own, so that a signal to all of ours does not end the work before the grace is over.
    set -m
    perform >"$scratch/result" &
    handler=$!
    set +m
    while kill -0 "$handler" 2>/dev/null; do
        sleep 0.2
        if [ "$SECONDS" -ge "$next_beat" ]; then
            next_beat=$((SECONDS + (lease + 2) / 3))
            extend || interrupted=yes
        fi
        [ "$SECONDS" -lt "$((give_up_at - 5))" ] || interrupted=yes
        [ -z "$interrupted" ] || kill -- "-$handler" 2>/dev/null
    done
    await "$handler"
    code=$?
    case "$code${interrupted:+ interrupted}" in
        0*) give completed '' "$(cat "$scratch/result")" '' ;;
        # It has not failed: it uses up no try, and need not wait for the back-off.
        *interrupted) give pending 'given back by a worker that stops' '' false ;;
        65) give aborted "$(cat "$scratch/result")" '' '' ;;
        # When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
        *) give pending "exit code $code" '' '' ;;
    esac
}

while [ -z "$stopping" ]; do
    if own; then
        work
    fi
done
log stopped
