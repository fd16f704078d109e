# Puts a peer's own statements into a script for pgbench or psql: <<name key=value ...>> becomes the text of the file
# name.sql in the folder `statements`, with each key in it ($1, or whatever the peer's client has there) replaced by
# its value. Neither keys nor values have blanks in them.
{
    line = $0
    while (match(line, /<<[a-z_]+( [^ =<>]+=[^ <>]+)*>>/)) {
        printf "%s", substr(line, 1, RSTART - 1)
        printf "%s", statement(substr(line, RSTART + 2, RLENGTH - 4))
        line = substr(line, RSTART + RLENGTH)
    }
    print line
}

function statement(call,    words, count, i, file, text, row, at) {
    count = split(call, words, " ")
    file = statements "/" words[1] ".sql"
    text = ""
    while ((getline row < file) > 0) text = text row "\n"
    close(file)
    if (text == "") {
        print "there is no statement " file > "/dev/stderr"
        exit 1
    }
    sub(/[; \n]+$/, "", text)
    for (i = 2; i <= count; i++) {
        at = index(words[i], "=")
        text = replaced(text, substr(words[i], 1, at - 1), substr(words[i], at + 1))
    }
    return text
}

# $1 is not the beginning of $10.
function replaced(text, key, value,    result, at, after) {
    result = ""
    while ((at = index(text, key)) > 0) {
        after = substr(text, at + length(key), 1)
        result = result substr(text, 1, at - 1) (key ~ /[0-9]$/ && after ~ /[0-9]/ ? key : value)
        text = substr(text, at + length(key))
    }
    return result text
}
