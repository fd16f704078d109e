# The table of the part `clients` of peers.sh: a line for each peer, a column for each number of clients, tasks/s. The
# same as a plot. Variables: title, svg; the first file has the names.
BEGIN { FS = "\t" }
FNR == NR { name[$1] = $2; next }
{
    split($2, label, ":")
    if (!(label[1] in seen)) { seen[label[1]]; order[++peers] = label[1] }
    if (!(label[2] in counted)) { counted[label[2]]; count[++counts] = label[2] }
    rate[label[1], label[2]] = $3
    if ($3 > most) most = $3
}
END {
    printf "| %s, tasks/s, with clients |", title
    for (i = 1; i <= counts; i++) printf " %d |", count[i]
    printf "\n|---|"
    for (i = 1; i <= counts; i++) printf "--:|"
    printf "\n"
    for (p = 1; p <= peers; p++) {
        printf "| %s |", name[order[p]]
        for (i = 1; i <= counts; i++) printf " %.0f |", rate[order[p], count[i]]
        printf "\n"
    }
    if (svg != "") plot()
}

function plot(    p, i, x, y, colours, colour) {
    split("#1f77b4 #999999 #d62728 #ff7f0e #9467bd #8c564b #2ca02c #17becf", colours, " ")
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"360\" font-family=\"sans-serif\" font-size=\"12\">\n" > svg
    printf "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"10\" y=\"18\" font-weight=\"bold\">%s, tasks/s, by number of clients</text>\n", title > svg
    printf "<path d=\"M60 30V320H520\" fill=\"none\" stroke=\"#333\"/><text x=\"55\" y=\"36\" text-anchor=\"end\">%.0f</text><text x=\"55\" y=\"324\" text-anchor=\"end\">0</text>\n", most > svg
    for (i = 1; i <= counts; i++)
        printf "<text x=\"%d\" y=\"338\" text-anchor=\"middle\">%d</text>\n", 60 + 440 * (i - 1) / (counts - 1), count[i] > svg
    for (p = 1; p <= peers; p++) {
        colour = colours[(p - 1) % 8 + 1]
        printf "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"", colour > svg
        for (i = 1; i <= counts; i++)
            printf "%.1f,%.1f ", 60 + 440 * (i - 1) / (counts - 1), 320 - 290 * rate[order[p], count[i]] / most > svg
        printf "\"/>\n<rect x=\"535\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"553\" y=\"%d\">%s</text>\n", 30 + 20 * p, colour, 41 + 20 * p, name[order[p]] > svg
    }
    print "</svg>" > svg
}
