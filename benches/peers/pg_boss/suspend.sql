<<fetch_one>> \gset
<<complete $1=:work $2=ARRAY[:id] $3=NULL>>;
