#!/usr/bin/env bash
# A worker for taskq in bash and psql: own, heartbeat, return.
#
#     PGHOST=... PGDATABASE=... worker.sh [ACTION,...]
#
# It performs one task at a time; run as many as you want tasks at once. SIGTERM or SIGINT: it takes no more, lets the
# task in hand finish within the grace, and gives it back if that does not suffice. A task that was cancelled or taken
# over is dropped as soon as a heartbeat hears of it. A psql for each call: no connection is held while a task runs.
set -uo pipefail

# What the worker can do: the action of a task, and the function that performs it.
declare -A handlers=([checksum]=checksum [words]=count_words)

# The actions of this process, with commas in between: those of the argument, or all.
actions=${1:-$(IFS=,; printf %s "${!handlers[*]}")}
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

# A handler reads fields of the body and writes its result (JSON). Any exit code but 0 and that of `reject`: another try may work.
checksum() {
    local text seconds fail
    text=$(text) && seconds=$(field seconds) && fail=$(field fail) || return
    [ -z "$fail" ] || { log "$fail"; return 1; } # anything else may work the next time
    sleep "${seconds:-0}"
    printf '{"sha256": "%s", "client": "shell"}' "$(printf %s "$text" | sha256sum | cut -d ' ' -f 1)"
}

count_words() {
    local text
    text=$(text) || return
    printf '{"words": %d, "client": "shell"}' "$(wc -w <<<"$text")"
}

# The text of the body, without which there is nothing to do.
text() {
    local text
    text=$(field text) || return
    [ -n "$text" ] || reject 'the body lacks a text'
    printf %s "$text"
}

# A field of the body.
field() {
    call -v field="$1" <<<"\\set body \`cat \"\$body\"\`
        SELECT :'body'::jsonb ->> :'field'" && return
    # Class 22: it is no JSON.
    ! grep -q 'ERROR: *22' "$error" || reject 'the body cannot be read'
    return 1
}

# Ends a handler, or a part of it in a shell of its own: no further try makes sense, and why.
reject() {
    printf %s "$1" >"$scratch/reason"
    exit 65
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

# The next task into id, token, action, num_tries and the file body, if there is one. Sleeps in the server until there is.
own() {
    local fields=()
    # In the background, because bash heeds no signal while it runs a program in the foreground.
    psql "${options[@]}" -z0 -v actor="$actor" -v actions="$actions" -v lease="$lease" -v wait="$wait" \
        >"$scratch/granted" 2>"$error" <<'SQL' &
SELECT task_id, token, action, num_tries, body
  FROM taskq.own_tasks(:'actor', 1, string_to_array(:'actions', ','), :'lease' * interval '1 second',
                       wait => :'wait' * interval '1 second')
SQL
    waiter=$!
    [ -z "$stopping" ] || end_wait "$waiter" &
    if ! await "$waiter" && [ -z "$stopping" ]; then
        log "own_tasks: $(head -n 1 "$error")"
        sleep "$((RANDOM % 3 + 1))"
    fi
    waiter=''
    mapfile -d '' -t fields <"$scratch/granted"
    [ ${#fields[@]} -ge 5 ] || return 1
    id=${fields[0]} token=${fields[1]} action=${fields[2]} num_tries=${fields[3]}
    printf %s "${fields[4]}" >"$body"
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

# Runs the handler of the task in hand. What its calls say goes to a file of its own, since heartbeats are called meanwhile.
perform() {
    local error=$scratch/perform.error
    "${handlers[$action]}"
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
        65) give aborted "$(cat "$scratch/reason")" '' '' ;;
        # When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
        *) give pending "exit code $code" '' '' ;;
    esac
}

IFS=, read -ra wanted <<<"$actions"
for action in "${wanted[@]}"; do
    [ -n "$action" ] && [ -n "${handlers[$action]:-}" ] && continue
    log "unknown action '$action': there are handlers for ${!handlers[*]}"
    exit 2
done
while [ -z "$stopping" ]; do
    if own; then
        work
    fi
done
log stopped
