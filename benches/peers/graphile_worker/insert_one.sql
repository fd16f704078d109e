<<add_job $1=:work $2=:json $3=NULL $4=NULL $5=NULL $6=NULL $7=NULL $8=NULL $9=NULL>>;
