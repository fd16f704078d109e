//! What a call may have done in a serial order: all that it can do alone, or something else, if another call was beside
//! it.

use crate::scenes::{Kind, Op, Rules};
use crate::spec::Spec;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// All that it can do.
    Whole,
    /// One of [`Op::passing_over`].
    PassingOver(usize),
    /// All that it can do while another transaction has done this one of its calls, and is open. It has gone since, or come
    /// later: of what stands behind one that is in its hands a claim takes the first.
    Beside(usize, usize),
    /// All upkeep that there is, and nothing else.
    Upkeep,
    /// All upkeep that there is, and then all that it can do.
    UpkeepFirst,
}

impl Form {
    /// Those of a call of a transaction.
    pub fn of(spec: &Spec, tx: usize, call: usize, beside: bool) -> Vec<Form> {
        let op = spec.txs[tx].calls[call];
        let mut forms = vec![Form::Whole];
        if beside {
            forms.extend((0..op.passing_over.len()).map(Form::PassingOver));
            // Of two, one that keeps an entry from the other has what is behind it to itself: that is for three.
            if op.kind == Kind::Claims && spec.txs.len() > 2 {
                let others = (0..spec.txs.len()).filter(|&other| other != tx);
                forms.extend(others.flat_map(|other| {
                    (0..spec.txs[other].calls.len()).map(move |call| Form::Beside(other, call))
                }));
            }
            if spec.scene.rules == Rules::Upkeep && op.kind == Kind::Claims {
                forms.extend([Form::Upkeep, Form::UpkeepFirst]);
            }
        }
        forms
    }

    pub fn upkeep_first(self) -> bool {
        matches!(self, Form::Upkeep | Form::UpkeepFirst)
    }

    /// The statement for it; nothing, if it does none.
    pub fn sql(self, op: &Op) -> Option<&'static str> {
        let sql = match self {
            Form::Whole | Form::UpkeepFirst | Form::Beside(..) => op.sql,
            Form::PassingOver(which) => op.passing_over[which],
            Form::Upkeep => "",
        };
        Some(sql).filter(|sql| !sql.is_empty())
    }

    /// To those in which every call did all that it could one comes first.
    pub fn cost(self) -> usize {
        match self {
            Form::Whole => 0,
            Form::PassingOver(which) => 1 + which,
            Form::Upkeep | Form::UpkeepFirst | Form::Beside(..) => 3,
        }
    }
}
