# The table of the part `held` of peers.sh. Variables: title; the first file has the names.
BEGIN { FS = "\t" }
FNR == NR { name[$1] = $2; next }
FNR == 1 { printf "| %s | first sixth, tasks/s | last sixth, tasks/s | last over first |\n|---|--:|--:|--:|\n", title }
{
    # "taskq (empty)": from a queue that is nearly empty.
    split($2, of, " ")
    printf "| %s%s | %.0f | %.0f | %.2f |\n", name[of[1]], of[2] ? ", nearly empty" : "", $3, $4, $5
}
