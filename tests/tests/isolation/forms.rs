//! What a call may have done in a serial order: all that it can do alone, or something else, if somebody was beside it.

use crate::scenes::{Kind, Op, Rules, Scene};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// All that it can do.
    Whole,
    /// One of [`Op::passing_over`].
    PassingOver(usize),
    /// All upkeep that there is, and nothing else.
    Upkeep,
    /// All upkeep that there is, and then all that it can do.
    UpkeepFirst,
}

impl Form {
    /// Those of a call.
    pub fn of(op: &Op, scene: &Scene, beside: bool) -> Vec<Form> {
        let mut forms = vec![Form::Whole];
        if beside {
            forms.extend((0..op.passing_over.len()).map(Form::PassingOver));
            if scene.rules == Rules::Upkeep && op.kind == Kind::Claims {
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
            Form::Whole | Form::UpkeepFirst => op.sql,
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
            Form::Upkeep | Form::UpkeepFirst => 3,
        }
    }
}
