<<enqueue $1=ARRAY[0] $2=ARRAY[:work] $3=ARRAY[:body::bytea] $4=ARRAY['0'::interval] $5=ARRAY[NULL] $6=ARRAY['{}'::jsonb]>>;
