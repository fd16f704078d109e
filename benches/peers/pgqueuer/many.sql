\if :begun = 0
SELECT array_fill('successful'::text, ARRAY[:batch::integer]) AS statuses, array_fill(NULL::text, ARRAY[:batch::integer]) AS traces \gset
\set begun 1
\endif
<<fetch_in_one_row $1=:batch $2='{work}' $3=:manager $4='30seconds'>> \gset
<<log $1=:ids $2=:statuses $3=:traces>>;
