#!/usr/bin/env bash
# Measures taskq beside other queues in PostgreSQL: graphile-worker, pg-boss, procrastinate, pgqueuer, PgQ, pgmq, absurd, and
# the floor, a table and nothing else. `make bench` calls it; after `make install-private` it can be run alone:
#
#   PG_CONFIG=$(.ci/server.sh) benches/peers.sh [one] [many] [insert_one] [insert_many] [held] [durable] [clients]
#   benches/peers.sh install          only fetches the packages, and makes a database of each
#
#   one, many                 claim and complete, one task at a time and BATCH at a time, from SIZE ready ones
#   insert_one, insert_many   one task a call, and a thousand
#   held                      `one` while a session holds a snapshot, for HELD_SECONDS: of a backlog, and of a queue that is nearly
#                             empty, where each client inserts a task before it claims one
#   durable                   suspending DURABLE_SIZE tasks for an event each, the events, and performing the tasks to their ends; and how
#                             long an idle worker takes from an event to its task
#   clients                   `one` with 1 to 64 clients, in one round (not among the default parts)
#
#   PEERS='taskq floor'   only these                        ROUNDS=3          measurements of each, the medians count
#   SECONDS_EACH=3        how long a measurement takes      SIZE=1000000      ready tasks at the beginning
#   CLIENTS=4             connections                       BATCH=100         tasks in a call of `many`
#   HELD_SECONDS=60       how long `held` takes             DURABLE_SIZE=40000   tasks of `durable`
#   SHARED_BUFFERS=4GB    of the server (1GB where the machine has less than 12 GB)
#
# A peer that cannot be had on this machine is skipped, and said so. What a peer is and where its statements come from
# stands in benches/peers/README.md. Nothing is installed but below target/. The machine should do nothing else meanwhile.
# The default run takes some 24 minutes on two cores, 14 of them for `held`. The tables and plots are in target/bench/peers/;
# benches/paste.sh puts them into docs/benchmarks.md.
# shellcheck disable=SC2034,SC2329  # `round` of the loops is not used in them; parts are called by their names
set -euo pipefail

cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/bench/peers
mkdir -p "$out"
out=$(cd "$out" && pwd -P)
# shellcheck source=benches/common.sh
. benches/common.sh

peers=${PEERS:-taskq floor graphile_worker pg_boss procrastinate pgqueuer pgq pgmq absurd}
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-3} size=${SIZE:-1000000} clients=${CLIENTS:-4} batch=${BATCH:-100}
held_seconds=${HELD_SECONDS:-60} durable_size=${DURABLE_SIZE:-40000}
export BATCH=$batch # for clients that write it into their statements

# --- the peers ---------------------------------------------------------------------------------------------------

# has PEER SCRIPT: whether the peer does that at all.
has() { [ -e "$benches/peers/$1/$2.sql" ]; }

# render PEER SCRIPT: with the peer's own statements in it; prints where it lies.
render() {
    local to=$out/$1/$2.sql
    awk -v statements="$out/$1/statements" -f "$benches/peers/render.awk" "$benches/peers/$1/$2.sql" >"$to"
    printf '%s\n' "$to"
}

# install PEER: its package into a folder of its own, its schema into a database that the others are made from.
install() {
    local from=$benches/peers/$1
    mkdir -p "$out/$1"
    if [ -e "$from/install.sh" ] && ! "$from/install.sh" "$out/$1" 2>"$out/$1/install.log"; then
        say "$1 is left out: $(tail -n 1 "$out/$1/install.log")"
        return 1
    fi
    new_database "$1"
    if ! "$from/schema.sh" "$out/$1" "$1" 2>"$out/$1/schema.err"; then
        say "$1 is left out: $(tail -n 1 "$out/$1/schema.err")"
        return 1
    fi
}

# fill PEER DATABASE NUMBER
fill() {
    local start=$SECONDS
    sql "$2" -v n="$3" -f "$(render "$1" fill)" >>"$out/$1/fill.log" || return
    say "$1 has $3 more ready tasks after $((SECONDS - start)) s"
}

# What pgbench is told besides: NAME=value, each after -D, in the array `settings`.
settings() {
    local line
    settings=(-D begun=0 -D work=work -D worker=bench -D resumed=resumed -D counter=0 -D calls="${calls:-0}"
        -D manager=5a3b1c9e-0000-4000-8000-000000000000
        -D body="$(printf 'x%.0s' $(seq 100))" -D json="{\"body\": \"$(printf 'x%.0s' $(seq 100))\"}")
    if has "$1" settings; then
        while read -r line; do
            settings+=(-D "$line")
        done < <(sql "$2" -f "$benches/peers/$1/settings.sql")
    fi
}

# --- a measurement -----------------------------------------------------------------------------------------------

left() { sql "$2" -f "$benches/peers/$1/left.sql"; }

# What went wrong with one of them does not keep the others from being measured; but the run has failed then.
failed=0
fail() {
    say "$*"
    failed=1
}

# measure PART LABEL PEER DATABASE SCRIPT BATCH [pgbench's arguments]: adds a line to the results: tasks/s, microseconds of
# the server's processors and bytes of WAL, each a task. The tasks are counted in the tables, not by calls; but if `calls` is set, each
# client makes so many, of one task each.
measure() {
    local part=$1 label=$2 peer=$3 database=$4 script=$5 batch=$6 log before after ticks wal spent span
    shift 6
    span=(-T "$seconds")
    [ -z "${calls:-}" ] || span=(-t "$calls")
    log=$out/$peer/$part.$script.log
    sql "$database" -c 'VACUUM (ANALYZE, INDEX_CLEANUP ON)'
    # Or what comes after a filling pays for writing that out.
    sql postgres -c CHECKPOINT
    sync
    settings "$peer" "$database"
    [ -n "${calls:-}" ] || before=$(left "$peer" "$database")
    wal=$(wal_position)
    ticks=$(cpu_ticks)
    pgbench -n -M prepared -f "$(render "$peer" "$script")" -c "$clients" -j 2 "${span[@]}" -D batch="$batch" \
        "${settings[@]}" "$@" "$database" >"$log" 2>&1 || { fail "$part of $label: $(grep -m 1 error "$log"); see $log"; return 0; }
    ticks=$(($(cpu_ticks) - ticks))
    wal=$(($(wal_position) - wal))
    if [ -n "${calls:-}" ]; then
        before=0 after=$((calls * clients))
    else
        after=$(left "$peer" "$database")
    fi
    spent=$(awk '/^number of transactions actually/ { n = $NF; sub(/.*\//, "", n) } /^tps/ { print n / $3 }' "$log")
    [ "$after" -gt 0 ] || { fail "$part of $label ran empty: give it a larger SIZE"; return 0; }
    awk -v OFS='\t' -v part="$part" -v label="$label" -v tasks=$((after - before)) -v spent="$spent" -v ticks="$ticks" \
        -v hz="$ticks_per_second" -v wal="$wal" 'BEGIN {
            if (tasks < 0) tasks = -tasks
            if (tasks == 0) exit 1
            print part, label, tasks / spent, ticks / hz * 1e6 / tasks, wal / tasks
        }' >>"$out/$part.tsv" || { fail "$part of $label did nothing"; return 0; }
    say "$(tail -n 1 "$out/$part.tsv" | awk -F '\t' '{ printf "%-12s %-16s %9.0f tasks/s %8.1f µs %7.0f bytes of WAL", $1, $2, $3, $4, $5 }')"
}

# --- claiming and completing -------------------------------------------------------------------------------------

# backlog PEER [FILE]: SIZE ready tasks, made new when a tenth has gone; or several times as many, if that file of the peer says so.
backlog() {
    local n size=$size times=$benches/peers/$1/${2:-backlogs}
    ! [ -e "$times" ] || size=$((size * $(cat "$times")))
    if [ "$(sql postgres -c "SELECT count(*) FROM pg_database WHERE datname = '$1_work'")" = 0 ]; then
        new_database "$1_work" "$1"
    fi
    n=$(left "$1" "$1_work")
    [ "$n" -ge $((size * 9 / 10)) ] || fill "$1" "$1_work" $((size - n))
}

# The first time, two at once.
backlogs() {
    local peer
    for peer in "${present[@]}"; do
        has "$peer" "$1" || continue
        [ "$(jobs -pr | wc -l)" -lt 2 ] || wait -n || true
        backlog "$peer" &
    done
    wait
    sql postgres -c CHECKPOINT
}

# work PART BATCH
work() {
    local round peer
    backlogs "$1"
    for round in $(seq "$rounds"); do
        for peer in "${present[@]}"; do
            has "$peer" "$1" || continue
            backlog "$peer" || { fail "$peer could not be filled"; continue; }
            measure "$1" "$peer" "$peer" "$peer"_work "$1" "$2"
            if has "$peer" both; then
                backlog "$peer"
                measure "$1" "$peer+" "$peer" "$peer"_work both "$2"
            fi
        done
    done
}

one() { work one 1; }
many() { work many "$batch"; }

# --- inserting ---------------------------------------------------------------------------------------------------

# inserting PART LABEL PEER SCRIPT BATCH: into an empty queue.
inserting() {
    has "$3" "$4" || return 0
    new_database "$3_insert" "$3"
    measure "$1" "$2" "$3" "$3_insert" "$4" "$5"
    sql postgres -c "DROP DATABASE $3_insert"
}

insert_one() {
    local round peer
    for round in $(seq "$rounds"); do
        for peer in "${present[@]}"; do
            inserting insert_one "$peer" "$peer" insert_one 1
        done
    done
}

insert_many() {
    local round peer
    for round in $(seq "$rounds"); do
        for peer in "${present[@]}"; do
            inserting insert_many "$peer" "$peer" insert_many 1000
            inserting insert_many "$peer+" "$peer" insert_bodies 1000
        done
    done
}

# --- under a held snapshot ---------------------------------------------------------------------------------------

holder=''

# hold DATABASE: a session takes a snapshot there, and keeps it.
hold() {
    psql -X -q -d "$1" -c 'BEGIN ISOLATION LEVEL REPEATABLE READ' -c 'SELECT count(*) FROM pg_class' \
        -c "SELECT pg_sleep($((held_seconds + 600)))" >/dev/null 2>&1 &
    holder=$!
    sleep 0.5
}

let_go() {
    kill "$holder" && wait "$holder" 2>/dev/null || true
    holder=''
    sql postgres -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'" >/dev/null
}

# held_line LABEL LOG: what it did in the last sixth of the time, over the first sixth.
held_line() {
    awk -v OFS='\t' -v label="$1" -v seconds="$held_seconds" '
        /^progress:/ { n++; tps[n] = $4 }
        END {
            sixth = int(seconds / 6)
            for (i = 1; i <= sixth; i++) { first += tps[i]; last += tps[n - i + 1] }
            print "held", label, first / sixth, last / sixth, last / first
        }' "$2" | tee -a "$out/held.tsv" | awk -F '\t' '{ printf "bench: held %-24s first sixth %7.0f tasks/s, last %7.0f: %.2f\n", $2, $3, $4, $5 }' >&2
}

# From a queue that is nearly empty: each client inserts a task, claims one and completes it.
held_empty() {
    local peer log script
    for peer in "${present[@]}"; do
        has "$peer" one && has "$peer" insert_one || continue
        new_database "${peer}_empty" "$peer"
        # So that no client comes upon an empty queue, and a client that claims always gets something.
        fill "$peer" "${peer}_empty" $((2 * clients)) || { fail "$peer could not be filled"; continue; }
        settings "$peer" "${peer}_empty"
        script=$out/$peer/turn.sql
        log=$out/$peer/held_empty.log
        cat "$(render "$peer" insert_one)" "$(render "$peer" one)" >"$script"
        hold "${peer}_empty"
        pgbench -n -M prepared -f "$script" -c "$clients" -j 2 -T "$held_seconds" -P 1 -D batch=1 \
            "${settings[@]}" "${peer}_empty" >"$log" 2>&1 || fail "held, nearly empty, $peer: see $log"
        let_go
        held_line "$peer (empty)" "$log"
        sql postgres -c "DROP DATABASE ${peer}_empty WITH (FORCE)"
    done
}

held() {
    local peer log
    held_empty
    backlogs one
    for peer in "${present[@]}"; do
        has "$peer" one || continue
        backlog "$peer" held_backlogs || { fail "$peer could not be filled"; continue; }
        sql "${peer}_work" -c 'VACUUM (ANALYZE, INDEX_CLEANUP ON)'
        settings "$peer" "${peer}_work"
        log=$out/$peer/held.log
        hold "${peer}_work"
        pgbench -n -M prepared -f "$(render "$peer" one)" -c "$clients" -j 2 -T "$held_seconds" -P 1 -D batch=1 \
            "${settings[@]}" "${peer}_work" >"$log" 2>&1 || fail "held, $peer: see $log"
        let_go
        [ "$(left "$peer" "${peer}_work")" -gt 0 ] || { fail "held: $peer ran empty: give it a larger SIZE"; continue; }
        held_line "$peer" "$log"
    done
}

# --- suspending and resuming -------------------------------------------------------------------------------------

# Claim and suspend each task for an event of its own; the events, one a call; claim and complete what they have woken.
durable() {
    local round peer script calls=$((durable_size / clients))
    : >"$out/suspend.tsv"
    : >"$out/signal.tsv"
    : >"$out/resume.tsv"
    for round in $(seq "$rounds"); do
        for peer in "${present[@]}"; do
            has "$peer" suspend || continue
            new_database "${peer}_durable" "$peer"
            sql "${peer}_durable" -v n=$((calls * clients)) -f "$(render "$peer" fill_numbered)" >>"$out/$peer/fill.log"
            for script in suspend signal resume; do
                measure $script "$peer" "$peer" "${peer}_durable" $script 1
            done
            [ "$(sql "${peer}_durable" -f "$benches/peers/$peer/done.sql")" = $((calls * clients)) ] ||
                fail "durable: $peer has not performed every task to its end"
            sql postgres -c "DROP DATABASE ${peer}_durable"
        done
    done
    latencies
}

# From an event to the task in an idle worker: of taskq a call that waits, of absurd its client's worker as shipped.
latencies() {
    local peer
    : >"$out/latency.tsv"
    for peer in "${present[@]}"; do
        [ -e "$benches/peers/$peer/latency.py" ] || continue
        new_database "${peer}_latency" "$peer"
        PGDATABASE=${peer}_latency "$out/absurd/environment/bin/python" "$benches/peers/$peer/latency.py" |
            sed "s/^/$peer\t/" | tee -a "$out/latency.tsv" >&2 || fail "latency of $peer"
        sql postgres -c "DROP DATABASE ${peer}_latency WITH (FORCE)"
    done
}

# --- many clients ------------------------------------------------------------------------------------------------

clients() {
    local peer count clients
    backlogs one
    for count in 1 2 4 8 16 32 64; do
        clients=$count
        for peer in "${present[@]}"; do
            # A queue of PgQ has one consumer.
            has "$peer" one || continue
            backlog "$peer"
            measure clients "$peer:$count" "$peer" "$peer"_work one 1
        done
    done
}

# --- tables and plots --------------------------------------------------------------------------------------------

# What each line is called: the peer with its version, and the other calls of taskq that do the same.
names() {
    local peer version
    for peer in "${present[@]}"; do
        version=$(cat "$out/$peer/version" 2>/dev/null || true)
        printf '%s\t%s\n' "$peer" "${peer//_/-}${version:+ $version}"
        [ "$peer" != taskq ] || printf 'taskq+\ttaskq, %s\n' "$1"
    done
}

thousands() { sed -E ':again; s/([0-9])([0-9]{3})(,|$)/\1,\2\3/; t again' <<<"$1"; }

# report PART
report() {
    local title other='' ready
    ready="$(thousands "$size") ready"
    case $1 in
        one) title="claim and complete one by one, $clients clients, $ready" other=return_and_own_tasks ;;
        many) title="claim and complete $batch a call, $clients clients, $ready" other=return_and_own_tasks ;;
        insert_one) title="insert one a call, $clients clients" ;;
        insert_many) title="insert 1,000 a call, $clients clients" other=insert_many ;;
        held) title="one by one, $held_seconds s under a held snapshot, $clients clients" ;;
        clients) title='claim and complete one by one' ;;
        suspend) title="claim and suspend for an event, $clients clients" ;;
        signal) title="an event, which wakes one task, $clients clients" ;;
        resume) title="claim and complete what an event has woken, $clients clients" ;;
        latency) title='from an event to its task in an idle worker' ;;
    esac
    names "$other" >"$out/names.tsv"
    awk -v part="$1" -v title="$title" -v svg="$out/$1.svg" -f "$benches/peers/$(report_of "$1").awk" \
        "$out/names.tsv" "$out/$1.tsv" >"$out/$1.md"
    printf '\n' >>"$out/$1.md"
}

report_of() {
    case $1 in
        held | clients | latency) printf '%s\n' "$1" ;;
        *) printf 'rates\n' ;;
    esac
}

# --- all ---------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || set -- one many insert_one insert_many held
for part in "$@"; do
    case "$part" in
        install | one | many | insert_one | insert_many | held | durable | clients) ;;
        *) die "there is no part $part" ;;
    esac
done

finish() {
    [ -z "$holder" ] || kill "$holder" 2>/dev/null || true
    stop_cluster
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[ -n "${SHARED_BUFFERS:-}" ] || [ "$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)" -lt 12000000 ] || SHARED_BUFFERS=4GB
start_cluster -c max_connections=200

present=()
for peer in $peers; do
    if install "$peer"; then
        present+=("$peer")
    fi
    # Of an earlier run.
    sql postgres -c "SET client_min_messages = warning" -c "DROP DATABASE IF EXISTS ${peer}_work WITH (FORCE)"
done

say "measured: ${present[*]}"
[ "$1" != install ] || exit 0

reports=()
for part in "$@"; do
    say "$part"
    sql postgres -c CHECKPOINT
    : >"$out/$part.tsv"
    "$part"
    case $part in
        durable) reports+=(suspend signal resume latency) ;;
        *) reports+=("$part") ;;
    esac
done
for part in "${reports[@]}"; do report "$part"; done
{
    printf '%s, %s cores, shared_buffers = %s, %s rounds of %s s.\n\n' "$("$pg_config" --version)" "$(nproc)" \
        "$(sql postgres -c 'SHOW shared_buffers')" "$rounds" "$seconds"
    for part in "${reports[@]}"; do cat "$out/$part.md"; done
} | tee "$out/tables.md"
printf '%s\n' "${reports[*]}" >"$out/parts" # for paste.sh
exit $failed
