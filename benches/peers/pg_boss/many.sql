<<fetch_many>> \gset
<<complete $1=:work $2=:ids $3=NULL>>;
