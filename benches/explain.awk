# Reads what auto_explain says of the statements inside the functions in four runs (kept plans, small and large
# queue; new plans, small and large) and prints a table of the buffers that each statement touched. Those that
# touch more than a few levels of an index more in the large queue go into the file `grows` as well.

FNR == 1 { finish(); column++ }

function finish() {
    if (query != "" && query ~ /taskq\.(action|task|run|blocked|scheduled|settled|dependency|signal|lease|progress)/ &&
        query !~ /taskq\.[a-z_]*\(/) {
        if (!(query in seen)) { seen[query] = 1; order[++queries] = query }
        # A statement may run several times in a run: its dearest call counts.
        if (buffers > most[query, column]) most[query, column] = buffers
        ran[query, column] = 1
    }
    query = ""
}

/NOTICE: +duration:/ { finish() }

/^Query Text: / {
    query = substr($0, 13)
    reading = 1
    counted = 0
    buffers = 0
    next
}

reading && /\(cost=/ { reading = 0 }
reading { query = query " " $0; next }

# The first line about buffers is that of the whole statement.
query != "" && !counted && /^ *Buffers: / {
    counted = 1
    rest = $0
    while (match(rest, /(hit|read)=[0-9]+/)) {
        split(substr(rest, RSTART, RLENGTH), pair, "=")
        buffers += pair[2]
        rest = substr(rest, RSTART + RLENGTH)
    }
}

END {
    finish()
    printf "" > grows
    print "| buffers per statement | kept plan, 1,000 ready | kept plan, 1,000,000 | new plan, 1,000 | new plan, 1,000,000 |"
    print "|---|---|---|---|---|"
    for (i = 1; i <= queries; i++) {
        query = order[i]
        text = query
        gsub(/[ \t]+/, " ", text)
        gsub(/\|/, "\\|", text)
        printf "| `%s` |", substr(text, 1, 90)
        for (c = 1; c <= 4; c++) printf " %s |", ran[query, c] ? most[query, c] : "-"
        printf "\n"
        for (c = 1; c <= 3; c += 2)
            if (most[query, c + 1] > 2 * most[query, c] + 20)
                print most[query, c], most[query, c + 1], (c == 1 ? "kept" : "new"), substr(text, 1, 200) > grows
    }
}
