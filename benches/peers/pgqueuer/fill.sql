-- One call: it takes arrays.
<<enqueue $1=array_fill(0,ARRAY[:n]) $2=array_fill('work'::text,ARRAY[:n]) $3=array_fill(convert_to(repeat('x',100),'UTF8'),ARRAY[:n]) $4=array_fill('0'::interval,ARRAY[:n]) $5=array_fill(NULL::text,ARRAY[:n]) $6=array_fill('{}'::jsonb,ARRAY[:n])>> \g /dev/null
