<<fetch $1=1 $2='{work}' $3=:manager $4='30seconds'>> \gset
<<log $1=ARRAY[:id::bigint] $2='{successful}' $3='{NULL}'>>;
