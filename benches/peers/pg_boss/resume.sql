<<fetch_resumed>> \gset
<<complete $1=:resumed $2=ARRAY[:id] $3=NULL>>;
