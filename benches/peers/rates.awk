# Tables out of the results of peers.sh, and a plot of each part in SVG. Variables: part, title; names, a file of lines
# "peer<TAB>name and version"; svg, the plot's file.
BEGIN { FS = "\t" }
FNR == NR { name[$1] = $2; order[++peers] = $1; next }
$1 == part { n[$2]++; for (i = 3; i <= 5; i++) value[$2, i, n[$2]] = $i + 0 }

function median(peer, column,    i, j, count, sorted, t) {
    count = n[peer]
    for (i = 1; i <= count; i++) sorted[i] = value[peer, column, i]
    for (i = 2; i <= count; i++)
        for (j = i; j > 1 && sorted[j - 1] > sorted[j]; j--) { t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t }
    return count % 2 ? sorted[(count + 1) / 2] : (sorted[count / 2] + sorted[count / 2 + 1]) / 2
}

function spread(peer,    i, least, most) {
    least = most = value[peer, 3, 1]
    for (i = 2; i <= n[peer]; i++) {
        if (value[peer, 3, i] < least) least = value[peer, 3, i]
        if (value[peer, 3, i] > most) most = value[peer, 3, i]
    }
    return thousands(least) "–" thousands(most)
}

# 12345 as 12,345.
function thousands(x,    text, result) {
    text = sprintf("%.0f", x)
    result = ""
    while (length(text) > 3) {
        result = "," substr(text, length(text) - 2) result
        text = substr(text, 1, length(text) - 3)
    }
    return text result
}

END {
    base = median("taskq", 3)
    printf "| %s | tasks/s | of taskq's | least–most | server CPU, µs a task | WAL, bytes a task |\n|---|--:|--:|--:|--:|--:|\n", title
    for (i = 1; i <= peers; i++) {
        peer = order[i]
        if (!n[peer]) continue
        rate[peer] = median(peer, 3)
        if (rate[peer] > longest) longest = rate[peer]
        printf "| %s | %s | %s | %s | %.1f | %.0f |\n", name[peer], thousands(rate[peer]),
            base ? sprintf("%.2f", rate[peer] / base) : "", spread(peer), median(peer, 4), median(peer, 5)
    }
    if (svg != "") plot()
}

# Bars, one below the other, as long as the rate.
function plot(    i, peer, y, width) {
    bars = 0
    for (i = 1; i <= peers; i++) if (n[order[i]]) bars++
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n", bars * 24 + 40 > svg
    printf "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"10\" y=\"20\" font-weight=\"bold\">%s, tasks/s</text>\n", title > svg
    y = 32
    for (i = 1; i <= peers; i++) {
        peer = order[i]
        if (!n[peer]) continue
        width = rate[peer] / longest * 370
        printf "<text x=\"250\" y=\"%d\" text-anchor=\"end\">%s</text><rect x=\"256\" y=\"%d\" width=\"%.1f\" height=\"18\" fill=\"%s\"/><text x=\"%.1f\" y=\"%d\">%s</text>\n",
            y + 14, name[peer], y, width, peer ~ /^taskq/ ? "#1f77b4" : peer == "floor" ? "#999" : "#c7a76c", 262 + width, y + 14, thousands(rate[peer]) > svg
        y += 24
    }
    print "</svg>" > svg
}
