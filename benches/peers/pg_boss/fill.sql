SELECT json_agg(json_build_object('data', json_build_object('body', repeat('x', 100)))) AS jobs FROM generate_series(1, :n) \gset
<<insert $1=:'jobs'>>;
