\if :begun = 0
SELECT json_agg(json_build_object('identifier', 'work', 'payload', :json::json)) AS jobs FROM generate_series(1, :batch) \gset
\set begun 1
\endif
<<add_jobs $1=:jobs $2=false>>;
