//! The table `workgroup`: workgroups that were delayed.

use crate::pg::clock::Time;
use crate::pg::statement::Statement;

pub(crate) static SET: Statement<(&str, Time)> = Statement::new(
    c"INSERT INTO taskq.workgroup AS w (name, not_before) VALUES ($1, $2)
      ON CONFLICT (name) DO UPDATE SET not_before = EXCLUDED.not_before",
);

pub(crate) static DELAY_FURTHER: Statement<(&[&str], &[Time])> = Statement::new(
    c"INSERT INTO taskq.workgroup AS w (name, not_before) SELECT * FROM unnest($1, $2)
      ON CONFLICT (name) DO UPDATE SET not_before = GREATEST(w.not_before, EXCLUDED.not_before)",
);
