# A table of latencies out of lines "peer<TAB>median<TAB>99 %", in milliseconds. Variable: title.
BEGIN { FS = "\t" }
FNR == NR { name[$1] = $2; next }
FNR == 1 { printf "| %s | median, ms | 99 %%, ms |\n|---|--:|--:|\n", title }
{ printf "| %s | %.1f | %.1f |\n", name[$1], $2, $3 }
