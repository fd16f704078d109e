SELECT json_agg(json_build_object('data', json_build_object('n', n))) AS jobs FROM generate_series(1, :n) AS n \gset
<<insert $1=:'jobs'>>;
